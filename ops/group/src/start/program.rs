//! One program that runs as a child process.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::service::StartError;

/// Time between two checks for the end of a program.
const END_POLL: Duration = Duration::from_millis(5);

/// A child process; killed with SIGKILL when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Starts a program with an empty standard input.
    ///
    /// # Errors
    /// [`StartError::Failed`] when the operating system does not start it.
    pub fn start(command: &mut Command) -> Result<Self, StartError> {
        let name = command.get_program().display().to_string();
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.map_err(StartError::of(format!("starting {name}")))?;
        Ok(Self { name, child })
    }

    /// Id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Exit status; `None` while the program runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM, waits for the end, and returns the program's standard output, or an empty text if standard output is not piped.
    ///
    /// # Errors
    /// [`StartError::NotReady`] after the limit; [`StartError::Failed`] if the signal cannot be sent or the output cannot be read. The program
    /// is then killed.
    pub async fn terminate(mut self, limit: Duration) -> Result<String, StartError> {
        self.signal("TERM")?;
        let until = Instant::now() + limit;
        while self.exit_status().is_none() {
            if Instant::now() >= until {
                let found = format!("{} does not end", self.name);
                return Err(StartError::NotReady { limit, found });
            }
            sleep(END_POLL).await;
        }
        let mut output = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            let read = stdout.read_to_string(&mut output);
            read.map_err(StartError::of(format!("reading from {}", self.name)))?;
        }
        Ok(output)
    }

    /// Sends a signal such as `STOP` or `CONT` with the shell's built-in `kill`, so that no library for signals is needed.
    ///
    /// # Errors
    /// [`StartError::Failed`] when the operating system does not start a shell.
    pub fn signal(&self, signal: &str) -> Result<(), StartError> {
        let command = format!("kill -{signal} {}", self.id());
        let status = Command::new("sh").args(["-c", &command]).status();
        status.map_err(StartError::of(format!("sending SIG{signal} to {}", self.name)))?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Errors are ignored: the program may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Path of one of our programs: in the folder of the running program, or one folder above, since cargo builds tests into a subfolder.
///
/// # Errors
/// [`StartError::NoProgram`] names the paths that were tried.
pub fn find_program(name: &str) -> Result<PathBuf, StartError> {
    let this_program = std::env::current_exe().map_err(StartError::of("finding this program".into()))?;
    let folders = [this_program.parent(), this_program.parent().and_then(Path::parent)];
    let paths: Vec<_> = folders.into_iter().flatten().map(|folder| folder.join(name)).collect();
    match paths.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => {
            let tried: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            Err(StartError::NoProgram { name: name.into(), tried: tried.join(", ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_terminated_program_gives_its_output() {
        let mut command = Command::new("sh");
        // The shell sets the trap before it prints the word that the test waits for, so the signal cannot come before the trap.
        command.args(["-c", "trap 'echo ended; exit' TERM; echo started >&2; while :; do sleep 0.01; done"]);
        let mut program = Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let mut byte = [0];
        program.child.stderr.take().unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(program.exit_status(), None);
        assert_eq!(program.terminate(Duration::from_secs(60)).await.unwrap(), "ended\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_the_paths() {
        let error = find_program("headwater-nothing").unwrap_err().to_string();
        assert!(error.contains("deps/headwater-nothing"), "{error}");
    }
}
