//! Messages among ranks by the MPI library of the system. MPI is called from the main thread alone.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headwater_models::scale_out::Communicator;
use mpi::collective::SystemOperation;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives};
use mpi::{Count, Threading};

use super::output::print_error;

/// The ranks that `mpirun` started.
pub(crate) struct Mpi {
    world: SimpleCommunicator,
    /// Left to [`Mpi::finish`]: ending MPI waits for all ranks, and a rank that failed must not wait.
    universe: ManuallyDrop<Universe>,
    sent: Cell<u64>,
    watch: Watch,
}

/// Ends the process when a rank waits for the others for too long: a rank that hangs must not hang all of them.
#[derive(Clone)]
struct Watch {
    started: Instant,
    /// Milliseconds after `started` since when this rank waits, plus one; 0 while it does not.
    waiting_since: Arc<AtomicU64>,
}

impl Watch {
    fn start(limit: Duration) -> Self {
        let watch = Self { started: Instant::now(), waiting_since: Arc::default() };
        let watched = watch.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500).min(limit));
                let since = watched.waiting_since.load(Ordering::Relaxed);
                let waited = watched.now().saturating_sub(since);
                if since > 0 && waited > limit.as_millis() as u64 {
                    let host = super::ranks::host();
                    print_error(&format!(
                        "headwater-train on {host}: expected all ranks to answer within {} s, found one that does not; this rank ends, and with it \
                         the job. Look for a rank that hangs, or raise --rank-timeout-s; the same command goes on from the last checkpoint",
                        limit.as_secs()
                    ));
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    /// Runs work that waits for other ranks.
    fn waits<R>(&self, work: impl FnOnce() -> R) -> R {
        self.waiting_since.store(self.now(), Ordering::Relaxed);
        let result = work();
        self.waiting_since.store(0, Ordering::Relaxed);
        result
    }
}

impl Mpi {
    /// Joins the ranks; `limit` is the longest wait for another rank.
    ///
    /// # Errors
    /// In words, when MPI cannot start.
    pub(crate) fn start(limit: Duration) -> Result<Self, String> {
        let watch = Watch::start(limit);
        let started = watch.waits(|| mpi::initialize_with_threading(Threading::Funneled));
        let (universe, threading) = started.ok_or("MPI was started twice")?;
        if threading < Threading::Funneled {
            return Err(format!("expected an MPI library for programs with threads, found {threading:?}"));
        }
        let world = universe.world();
        Ok(Self { world, universe: ManuallyDrop::new(universe), sent: Cell::new(0), watch })
    }

    /// Waits until every rank is here, without keeping a core busy and without a limit: rank 0 may export for long.
    pub(crate) fn wait_for_all(&self) {
        let mut request = self.world.immediate_barrier();
        loop {
            match request.test() {
                Ok(_) => return,
                Err(open) => request = open,
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Leaves MPI, when every rank does.
    pub(crate) fn finish(self) {
        drop(ManuallyDrop::into_inner(self.universe));
    }

    fn count_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }
}

/// A place for messages without bytes.
static NOTHING: [u8; 1] = [0];

/// Beginning of each message in a buffer.
fn places(counts: &[Count]) -> Vec<Count> {
    counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect()
}

fn count(len: usize) -> Count {
    Count::try_from(len).expect("a message is below 2 GiB: it holds the parameters of a small network")
}

/// The messages in a buffer.
fn split(buffer: &[u8], counts: &[Count]) -> Vec<Vec<u8>> {
    let places = places(counts);
    let messages =
        places.iter().zip(counts).map(|(at, count)| buffer[*at as usize..][..*count as usize].to_vec());
    messages.collect()
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn ranks(&self) -> usize {
        self.world.size() as usize
    }

    fn all_gather_of(&self, message: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
        self.count_sent(message.len() * (self.ranks() - 1));
        let counts: Vec<Count> = lens.iter().copied().map(count).collect();
        if counts.iter().all(|count| *count == 0) {
            self.watch.waits(|| self.world.barrier());
            return vec![Vec::new(); counts.len()];
        }
        // The address of an empty vector is 1, which is MPI's sign for "in place".
        let message = if message.is_empty() { &NOTHING[..0] } else { message };
        self.watch.waits(|| {
            let mut buffer = vec![0u8; counts.iter().sum::<Count>() as usize];
            let mut partition = PartitionMut::new(&mut buffer[..], &counts[..], places(&counts));
            self.world.all_gather_varcount_into(message, &mut partition);
            split(&buffer, &counts)
        })
    }

    fn all_to_all(&self, messages: &[Vec<u8>], len: usize) -> Vec<Vec<u8>> {
        assert_eq!(messages.len(), self.ranks(), "one message for each rank");
        let own = self.rank();
        let to_others = messages.iter().enumerate().filter(|(rank, _)| *rank != own);
        self.count_sent(to_others.map(|(_, message)| message.len()).sum());
        self.watch.waits(|| {
            let sent: Vec<Count> = messages.iter().map(|message| count(message.len())).collect();
            let counts = vec![count(len); messages.len()];
            let out = messages.concat();
            let out = Partition::new(&out[..], &sent[..], places(&sent));
            let mut buffer = vec![0u8; counts.iter().sum::<Count>() as usize];
            let mut partition = PartitionMut::new(&mut buffer[..], &counts[..], places(&counts));
            self.world.all_to_all_varcount_into(&out, &mut partition);
            split(&buffer, &counts)
        })
    }

    fn all_reduce(&self, values: &mut [f32]) {
        // A ring sends each part of the vector twice, but for the own one.
        let bytes = size_of_val(values);
        self.count_sent(2 * bytes * (self.ranks() - 1) / self.ranks());
        let own = values.to_vec();
        self.watch.waits(|| self.world.all_reduce_into(&own[..], values, SystemOperation::sum()));
    }

    fn sent_bytes(&self) -> u64 {
        self.sent.get()
    }
}
