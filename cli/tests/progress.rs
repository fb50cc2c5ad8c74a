//! The bar that shows how far reading has come: on a terminal, and nowhere else.

mod common;

use common::{command, commtrace, shown, stderr};
use std::fs;
use std::path::PathBuf;
use tempfile::{TempDir, tempdir};

/// A folder of two traces.
fn traces() -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    for rank in 0..2 {
        let events: Vec<String> = (0..5_000)
            .map(|index| {
                let row = r#""args":{"device":0,"stream":7}"#;
                format!(r#"{{"ph":"X","cat":"kernel","name":"gemm","ts":{index},"dur":1,{row}}}"#)
            })
            .collect();
        let text = format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(","));
        fs::write(folder.path().join(format!("rank{rank}.json")), text).unwrap();
    }
    let path = folder.path().to_owned();
    (folder, path)
}

#[test]
fn nothing_of_it_goes_into_a_pipe() {
    let (folder, path) = traces();
    let output = commtrace(["report".as_ref(), path.as_os_str()]);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stderr(&output), "");
    assert!(!output.stdout.contains(&b'\x1b'), "{}", shown(&output));

    let out = folder.path().join("out.json");
    let arguments = ["convert".as_ref(), path.as_os_str(), "-o".as_ref(), out.as_os_str()];
    let output = commtrace(arguments);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stderr(&output), format!("commtrace: wrote {}\n", out.display()));
}

#[cfg(unix)]
#[test]
fn a_terminal_shows_it_while_reading_and_is_clean_afterwards() {
    use std::io::Read;
    use std::process::Stdio;

    let (_folder, path) = traces();
    let (mut terminal, end) = terminal::open();
    let mut command = command();
    command.arg("report").arg(&path).env("TERM", "xterm").env_remove("NO_COLOR");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(end).spawn().unwrap();
    // The command holds the other end no longer than it runs, and this process must not.
    drop(command);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        // Where the other end is closed, Linux reports an error and others the end.
        while let Ok(count @ 1..) = terminal.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let output = child.wait_with_output().unwrap();
    let drawn = reader.join().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    assert!(drawn.contains("reading 2 files ["), "{drawn:?}");
    // What was drawn last is erased, and the cursor is where it began.
    let last = drawn.rfind("reading").map(|at| &drawn[at..]).unwrap_or_default();
    assert!(last.ends_with("\r\x1b[2K"), "{drawn:?}");
    assert!(!drawn.contains('\n'), "{drawn:?}");
    assert!(!output.stdout.contains(&b'\x1b'), "{}", shown(&output));
}

#[cfg(unix)]
mod terminal {
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::ptr::null_mut;

    /// A pseudo-terminal of 100 columns: its own end, and the one of a program that runs in it.
    pub fn open() -> (File, OwnedFd) {
        let (mut own, mut other) = (-1, -1);
        let mut size = libc::winsize { ws_row: 25, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the two numbers and the size outlive the call; null stands for no name and no settings.
        let result = unsafe { libc::openpty(&mut own, &mut other, null_mut(), null_mut(), &raw mut size) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        for fd in [own, other] {
            // SAFETY: the descriptor was just opened.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: both were just opened, and nothing else owns them.
        unsafe { (File::from_raw_fd(own), OwnedFd::from_raw_fd(other)) }
    }
}
