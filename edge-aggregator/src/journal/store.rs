//! The file of a journal: writes, compactions, and the room that it holds in reserve.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_inference::leader::journal::{Entry, FORMAT};
use headwater_protocol::{Dropped, SampleId, Settled};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::disk::{Disk, is_out_of_room, replace};
use super::{Flush, MAX_WHOLE_LINES, RETRY};
use crate::settings::group::{JournalSettings, JournalSync};

#[derive(Debug)]
pub(super) struct Store {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    sync: JournalSync,
    max_bytes: u64,
    /// Size in bytes at which the file is compacted next.
    compact_at: u64,
    /// Time before which no compaction is tried; set by a failed compaction.
    pub(super) compact_after: Option<Instant>,
    /// Bytes of the file, without the entries in the buffer.
    pub(super) length: u64,
    /// True if a failed write may have left bytes after `length`.
    has_partial_write: bool,
    /// True if the file ends within a line that could not be removed. The next write then begins with a newline.
    pub(super) ends_in_line: bool,
    /// True once this process has appended entries to this file. The first entries that it appends, also those after a compaction, follow a
    /// line with the format.
    pub(super) says_format: bool,
    /// True once the folder was synced with the name of this file, since the start or since the file was replaced.
    is_folder_synced: bool,
    pub(super) room: Room,
    /// Time before which no write is tried; set by a failed write.
    pub(super) write_after: Option<Instant>,
    /// Lines of decided and dropped samples, oldest first.
    pub(super) closed: VecDeque<ClosedLine>,
}

/// State of the reserve file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The reserve file exists.
    Reserved,
    /// There is no reserve file: making it was not tried yet, or failed for another reason than a full disk.
    Unknown,
    /// There is no reserve file: it was deleted after a failed write, or could not be made on a full disk. The next attempt to make one is
    /// at `retry_at`.
    Used { retry_at: Instant },
}

/// Position of the line of a decided or dropped sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedLine {
    dropped: Option<Dropped>,
    pub(super) at: u64,
    pub(super) length: usize,
}

impl Store {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        (path, settings): (&Path, &JournalSettings),
        file: File,
        length: u64,
    ) -> Self {
        Self {
            disk,
            path: path.to_owned(),
            file: Arc::new(file),
            sync: settings.sync,
            max_bytes: settings.max_bytes,
            compact_at: settings.max_bytes,
            compact_after: None,
            length,
            has_partial_write: false,
            ends_in_line: false,
            says_format: false,
            is_folder_synced: false,
            room: Room::Unknown,
            write_after: None,
            closed: VecDeque::new(),
        }
    }

    /// Cuts off a last line that was never finished and begins at `torn`.
    pub(super) fn cut_torn(&mut self, torn: Option<u64>) {
        let Some(at) = torn else { return };
        match self.file.set_len(at) {
            Ok(()) => self.length = at,
            Err(reason) => {
                let path = self.path.display();
                warn!(%path, %reason, "the torn last line of the journal cannot be cut off and stays in it");
                self.ends_in_line = true;
            }
        }
    }

    /// Waits until the disk has the entries of earlier processes, since their decisions are published again.
    pub(super) fn sync_at_start(&mut self) {
        if self.sync == JournalSync::Never {
            return;
        }
        match self.file.sync_data().and_then(|()| self.disk.sync_folder_of(&self.path)) {
            Ok(()) => self.is_folder_synced = true,
            Err(reason) => {
                let path = self.path.display();
                warn!(%path, %reason, "the disk does not take the journal of the last start: a power loss may lose its last decisions");
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.write_after.is_none() && !matches!(self.room, Room::Used { .. })
    }

    /// Makes the reserve file, and notes the outcome in `room`.
    pub(super) fn reserve(&mut self, now: Instant) {
        let path = self.path.with_added_extension("reserve");
        let was_full = matches!(self.room, Room::Used { .. });
        self.room = match self.disk.reserve(&path) {
            Ok(()) => Room::Reserved,
            Err(reason) if is_out_of_room(&reason) => {
                if !was_full {
                    let path = path.display();
                    error!(%path, %reason, "no room to reserve for the journal: the group takes no new samples until there is");
                }
                Room::Used { retry_at: now + RETRY }
            }
            Err(reason) => {
                let path = path.display();
                warn!(%path, %reason, "the journal reserves no room for the case of a full disk");
                Room::Unknown
            }
        };
    }

    /// Writes entries. If that fails and there is a reserve file, deletes that file and tries once more.
    pub(super) async fn write_or_wait(&mut self, buffer: &[u8]) -> Flush {
        let mut written = self.write(buffer).await;
        if let (Err(reason), Room::Reserved) = (&written, self.room) {
            let path = self.path.display();
            error!(
                %path, %reason,
                "the journal cannot be written: open samples are finished with the room in reserve, and the group takes no new \
                 samples until there is more; free room on this disk"
            );
            self.disk.release(&self.path.with_added_extension("reserve"));
            self.room = Room::Used { retry_at: Instant::now() + RETRY };
            written = self.write(buffer).await;
        }
        match written {
            Ok(()) => {
                self.length += buffer.len() as u64;
                (self.ends_in_line, self.says_format) = (false, true);
                self.forget_surplus(2 * MAX_WHOLE_LINES);
                if self.write_after.take().is_some() {
                    info!(path = %self.path.display(), "the journal can be written again");
                }
                Flush::Written
            }
            Err(reason) => {
                self.forget_unwritten();
                if self.write_after.is_none() {
                    let path = self.path.display();
                    error!(%path, %reason, "the journal cannot be written: the group decides nothing until it can; trying every second");
                }
                self.write_after = Some(Instant::now() + RETRY);
                Flush::Failed
            }
        }
    }

    async fn write(&mut self, buffer: &[u8]) -> io::Result<()> {
        if self.has_partial_write {
            self.file.set_len(self.length)?;
        }
        self.has_partial_write = true;
        // A write into the page cache takes microseconds; handing it to a blocking thread would take longer.
        self.disk.append(&self.file, buffer)?;
        if self.sync == JournalSync::Always {
            let (file, disk) = (Arc::clone(&self.file), Arc::clone(&self.disk));
            let folder = (!self.is_folder_synced).then(|| self.path.clone());
            let synced = tokio::task::spawn_blocking(move || {
                file.sync_data()?;
                folder.map_or(Ok(()), |path| disk.sync_folder_of(&path))
            });
            synced.await.map_err(io::Error::other).flatten()?;
            self.is_folder_synced = true;
        }
        self.has_partial_write = false;
        Ok(())
    }

    /// Removes the positions of lines that were not written.
    fn forget_unwritten(&mut self) {
        while self.closed.pop_back_if(|line| line.at >= self.length).is_some() {}
    }

    /// If there are positions of more than `max` lines, keeps those of the latest [`MAX_WHOLE_LINES`].
    fn forget_surplus(&mut self, max: usize) {
        if self.closed.len() > max {
            let surplus = self.closed.len() - MAX_WHOLE_LINES;
            self.closed.drain(..surplus);
        }
    }

    pub(super) fn is_compaction_due(&self, now: Instant) -> bool {
        let may_try = self.compact_after.is_none_or(|after| now >= after);
        self.length >= self.compact_at && may_try && self.has_room()
    }

    /// Writes a new file beside the old one and renames it over the old one. The latest closed samples stay as whole lines, the others
    /// as ids: without its id a sample could be decided a second time after a restart. The written account leaves out the samples of whole
    /// lines, since replay counts these lines again.
    pub(super) fn compact(
        &mut self,
        settled: &Settled,
        entries: impl Iterator<Item = Entry>,
        open: impl Iterator<Item = SampleId>,
    ) -> io::Result<()> {
        self.forget_surplus(MAX_WHOLE_LINES);
        let (mut lines, mut kept) = (Vec::new(), VecDeque::new());
        for line in &self.closed {
            let start = lines.len();
            lines.resize(start + line.length, 0);
            // If the disk cannot read a line any more, the id keeps its sample closed.
            match self.file.read_exact_at(&mut lines[start..], line.at) {
                Ok(()) => kept.push_back(ClosedLine { at: start as u64, ..*line }),
                Err(_) => lines.truncate(start),
            }
        }
        let mut text = Vec::new();
        Entry::Format(FORMAT).write_line(&mut text);
        Entry::Settled(without(settled, &kept)).write_line(&mut text);
        entries.for_each(|entry| entry.write_line(&mut text));
        open.for_each(|sample| Entry::Opened(sample).write_line(&mut text));
        kept.iter_mut().for_each(|line| line.at += text.len() as u64);
        text.append(&mut lines);
        let file =
            replace(&self.path, self.sync == JournalSync::Always, |file| self.disk.append(file, &text))?;
        self.take_file(file, text.len() as u64);
        self.closed = kept;
        // The lines that stay may exceed the bound; compacting them every time would be useless.
        self.compact_at = self.max_bytes.max(2 * self.length);
        Ok(())
    }

    /// Goes on with a file that has replaced the old one.
    pub(super) fn take_file(&mut self, file: File, length: u64) {
        self.file = Arc::new(file);
        self.length = length;
        self.has_partial_write = false;
        (self.ends_in_line, self.says_format) = (false, false);
        self.is_folder_synced = false;
    }
}

/// The account without the samples of these lines.
fn without(settled: &Settled, lines: &VecDeque<ClosedLine>) -> Settled {
    let mut earlier = settled.clone();
    // Replay takes back one decision for each line of a result that the broker refused.
    let refused = lines.iter().filter(|line| line.dropped == Some(Dropped::ResultRefused)).count();
    earlier.decided = earlier.decided.saturating_add(refused as u64);
    for line in lines {
        match line.dropped {
            None => earlier.decided = earlier.decided.saturating_sub(1),
            Some(reason) => {
                earlier.dropped.entry(reason).and_modify(|count| *count = count.saturating_sub(1));
            }
        }
    }
    earlier.dropped.retain(|_, count| *count > 0);
    earlier
}

/// Notes the line of a decided or dropped sample. A new numbering forgets the lines before it: their ids mean nothing any more.
pub(super) fn note_closed(lines: &mut VecDeque<ClosedLine>, entry: &Entry, at: u64, length: usize) {
    match entry {
        Entry::Decided(_) => lines.push_back(ClosedLine { dropped: None, at, length }),
        Entry::Dropped { reason, .. } => lines.push_back(ClosedLine { dropped: Some(*reason), at, length }),
        Entry::Numbering(None) => lines.clear(),
        Entry::Format(_)
        | Entry::Numbering(Some(_))
        | Entry::Opened(_)
        | Entry::Settled(_)
        | Entry::ClosedRanges { .. } => {}
    }
}
