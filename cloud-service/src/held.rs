//! What there is once for each network that the service holds.

use headwater_inference::bundle::Generation;

/// One for the current network, and one for the next while a group switches over to it.
#[derive(Clone, Debug)]
pub(crate) struct Held<T> {
    pub(crate) current: T,
    pub(crate) next: Option<T>,
}

impl<T> Held<T> {
    /// Both, the current one first, each with what it is.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Generation, &T)> {
        let next = self.next.as_ref().map(|next| (Generation::Next, next));
        [(Generation::Current, &self.current)].into_iter().chain(next)
    }

    /// Something of each.
    pub(crate) fn map<U>(&self, of: impl Fn(&T) -> U) -> Held<U> {
        Held { current: of(&self.current), next: self.next.as_ref().map(of) }
    }
}
