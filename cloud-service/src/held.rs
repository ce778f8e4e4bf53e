//! What there is once for each network that the service holds.

/// One for the current network, and one for the next while a group switches over to it.
#[derive(Clone, Debug)]
pub(crate) struct Held<T> {
    pub(crate) current: T,
    pub(crate) next: Option<T>,
}

impl<T> Held<T> {
    /// Both, the current one first, each with what it is.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Standing, &T)> {
        let next = self.next.as_ref().map(|next| (Standing::Next, next));
        [(Standing::Current, &self.current)].into_iter().chain(next)
    }

    /// Something of each.
    pub(crate) fn map<U>(&self, of: impl Fn(&T) -> U) -> Held<U> {
        Held { current: of(&self.current), next: self.next.as_ref().map(of) }
    }
}

/// Whether a network is the current one or the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Current,
    Next,
}

impl Standing {
    /// As labels of metrics and messages say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
        }
    }
}
