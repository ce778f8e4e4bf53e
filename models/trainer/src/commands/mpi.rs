//! Messages among ranks by the MPI library of the system. MPI is called from the main thread alone.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headwater_training::scale_out::Communicator;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives, Destination, Source};
use mpi::{Tag, Threading};

use super::output::print_error;

/// Tag of the messages by which a rank says that it works while other ranks wait.
const WORKING: Tag = 1;

/// Longest time that rank 0 may export while the other ranks wait.
const LONGEST_EXPORT: Duration = Duration::from_mins(15);

/// The ranks that `mpirun` started.
pub(crate) struct Mpi {
    world: SimpleCommunicator,
    /// Dropped in [`Mpi::finish`] alone: dropping it ends MPI, which waits for all ranks, and a rank that failed must not wait.
    universe: ManuallyDrop<Universe>,
    sent: Cell<u64>,
    watch: Watch,
    /// Longest wait for another rank.
    limit: Duration,
    /// Time at which this rank last told the other ranks that it works.
    told: Cell<Instant>,
}

/// Ends the process if this rank waits too long for other ranks, so that one rank that hangs does not hang all ranks.
#[derive(Clone)]
struct Watch {
    started: Instant,
    /// Milliseconds after `started` at which this rank has waited for too long; 0 while it does not wait.
    until: Arc<AtomicU64>,
}

impl Watch {
    fn start(limit: Duration) -> Self {
        let watch = Self { started: Instant::now(), until: Arc::default() };
        let watched = watch.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500).min(limit));
                let until = watched.until.load(Ordering::Relaxed);
                if until > 0 && watched.now() > until {
                    let host = super::agreement::host();
                    print_error(&format!(
                        "headwater-train on {host}: expected all ranks to answer within {} s, found one that does not; this rank ends, and with it \
                         the job. Look for a rank that hangs, or raise --rank-timeout-s; the same command goes on from the last checkpoint, if \
                         there is one",
                        limit.as_secs()
                    ));
                    std::process::exit(1);
                }
            }
        });
        watch
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Begins a wait of this rank for other ranks; the process ends if the wait is longer than `limit`.
    fn begin(&self, limit: Duration) {
        self.until.store(self.now() + limit.as_millis() as u64, Ordering::Relaxed);
    }

    /// Ends the wait.
    fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

impl Mpi {
    /// Joins the ranks; `limit` is the longest wait for another rank.
    ///
    /// # Errors
    /// The reason in words, when MPI cannot start.
    pub(crate) fn start(limit: Duration) -> Result<Self, String> {
        let watch = Watch::start(limit);
        watch.begin(limit);
        let started = mpi::initialize_with_threading(Threading::Funneled);
        watch.end();
        let (universe, threading) = started.ok_or("MPI was started twice")?;
        if threading < Threading::Funneled {
            return Err(format!("expected an MPI library for programs with threads, found {threading:?}"));
        }
        let world = universe.world();
        let (universe, told) = (ManuallyDrop::new(universe), Cell::new(Instant::now()));
        Ok(Self { world, universe, sent: Cell::new(0), watch, limit, told })
    }

    /// Waits until every rank has done its work, and leaves MPI.
    pub(crate) fn finish(self) {
        self.wait(self.limit.max(LONGEST_EXPORT));
        self.watch.begin(self.limit);
        drop(ManuallyDrop::into_inner(self.universe));
        self.watch.end();
    }

    /// Waits until every rank has called this function, without keeping a core busy. Each message of a rank that works begins `limit`
    /// again.
    fn wait(&self, limit: Duration) {
        let mut request = self.world.immediate_barrier();
        self.watch.begin(limit);
        while let Err(open) = request.test() {
            request = open;
            while let Some(status) = self.world.any_process().immediate_probe_with_tag(WORKING) {
                let from = self.world.process_at_rank(status.source_rank());
                from.receive_into_with_tag(&mut [0u8], WORKING);
                self.watch.begin(limit);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.watch.end();
    }

    /// Runs work that waits for other ranks; the process ends if the work takes longer than the limit.
    fn waits<R>(&self, work: impl FnOnce() -> R) -> R {
        self.watch.begin(self.limit);
        let result = work();
        self.watch.end();
        result
    }

    /// Sends `message_to(rank)` to every other rank, and returns the messages of all ranks; `lens` has their lengths in bytes, and `own`
    /// is the message of this rank to itself.
    fn exchange<'m>(
        &self,
        message_to: impl Fn(usize) -> &'m [u8],
        lens: &[usize],
        own: Vec<u8>,
    ) -> Vec<Vec<u8>> {
        let rank = self.rank();
        let mut received: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        received[rank].clear();
        let others = (0..self.ranks()).filter(|other| *other != rank);
        let outgoing: Vec<(usize, &[u8])> = others.map(|other| (other, message_to(other))).collect();
        self.count_sent(outgoing.iter().map(|(_, message)| message.len()).sum());
        self.waits(|| {
            mpi::request::scope(|scope| {
                let mut requests = Vec::new();
                let incoming = received.iter_mut().enumerate().filter(|(_, message)| !message.is_empty());
                let incoming = incoming.map(|(other, message)| {
                    self.world.process_at_rank(other as i32).immediate_receive_into(scope, &mut message[..])
                });
                let incoming: Vec<_> = incoming.collect();
                for (other, message) in &outgoing {
                    if !message.is_empty() {
                        let to = self.world.process_at_rank(*other as i32);
                        requests.push(to.immediate_send(scope, *message));
                    }
                }
                incoming.into_iter().for_each(|request| _ = request.wait());
                requests.into_iter().for_each(|request| _ = request.wait());
            });
        });
        received[rank] = own;
        received
    }

    fn count_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn ranks(&self) -> usize {
        self.world.size() as usize
    }

    fn all_gather_of(&self, message: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
        if lens.iter().all(|len| *len == 0) {
            self.waits(|| self.world.barrier());
            return vec![Vec::new(); lens.len()];
        }
        self.exchange(|_| message, lens, message.to_vec())
    }

    fn all_to_all(&self, mut messages: Vec<Vec<u8>>, len: usize) -> Vec<Vec<u8>> {
        assert_eq!(messages.len(), self.ranks(), "one message for each rank");
        let own = std::mem::take(&mut messages[self.rank()]);
        self.exchange(|rank| &messages[rank], &vec![len; self.ranks()], own)
    }

    fn all_reduce(&self, values: &mut [f32]) {
        // MPI does not tell what it sends. Counted as for a ring: two rounds, in each of which a rank sends all parts of the vector but
        // one.
        let bytes = size_of_val(values);
        self.count_sent(2 * bytes * (self.ranks() - 1) / self.ranks());
        let own = values.to_vec();
        self.waits(|| self.world.all_reduce_into(&own[..], values, SystemOperation::sum()));
    }

    fn wait_for_all(&self) {
        self.wait(self.limit);
    }

    fn is_working(&self) {
        if self.told.get().elapsed() < self.limit / 4 {
            return;
        }
        self.told.set(Instant::now());
        for rank in (0..self.world.size()).filter(|rank| *rank != self.world.rank()) {
            self.world.process_at_rank(rank).send_with_tag(&[0u8], WORKING);
        }
    }

    fn sent_bytes(&self) -> u64 {
        self.sent.get()
    }
}
