//! The folder below which a receiver writes. All calls name a file within the opened folder.
//!
//! A `FileName` has no slash, and no call follows a symbolic link, so nothing outside the folder is opened.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::io::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;

use super::name::FileName;
use crate::key::reason;
use crate::sys::checked;

/// Who may read and write a received file, before the process's umask.
const MODE: libc::mode_t = 0o666;
/// How often a partial file may be renamed between its opening and its locking.
const TRIES: usize = 5;

/// An opened folder.
#[derive(Debug)]
pub struct Folder {
    file: File,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Folder, String> {
        let cannot =
            |error: io::Error| format!("cannot write to the folder {}: {}", path.display(), reason(&error));
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path).map_err(cannot)?;
        let writable = CString::new(".").map_err(|error| cannot(error.into()))?;
        // SAFETY: the string lives during the call.
        checked(unsafe {
            libc::faccessat(file.as_raw_fd(), writable.as_ptr(), libc::W_OK, libc::AT_EACCESS)
        })
        .map_err(cannot)?;
        Ok(Folder { file })
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Open a file for reading; None if no such file exists.
    pub fn read(&self, name: &FileName) -> io::Result<Option<File>> {
        match self.open_at(name.as_str(), libc::O_RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Open or make the partial file of a name, and lock it until it is closed.
    ///
    /// EWOULDBLOCK: another transfer has locked it. ELOOP: it is a symbolic link.
    pub fn lock_partial(&self, name: &FileName) -> io::Result<File> {
        let partial = name.partial();
        for _ in 0..TRIES {
            let file = self.open_at(&partial, libc::O_RDWR | libc::O_CREAT)?;
            // SAFETY: flock takes no pointer.
            checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })?;
            let about = file.metadata()?;
            if !about.is_file() || about.nlink() > 1 {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            // The transfer that held the lock may have renamed the file since.
            if self.leads_to(&partial, &file)? {
                return Ok(file);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK))
    }

    /// Give the partial file its final name, unless a file of that name exists.
    ///
    /// ESTALE: the name of the partial file has another file than `partial`.
    pub fn finish(&self, name: &FileName, partial: &File) -> io::Result<()> {
        if !self.leads_to(&name.partial(), partial)? {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let (from, to) = (CString::new(name.partial())?, CString::new(name.as_str())?);
        let (folder, keep) = (self.fd(), libc::RENAME_NOREPLACE);
        // SAFETY: the strings live during the call.
        let renamed = checked(unsafe { libc::renameat2(folder, from.as_ptr(), folder, to.as_ptr(), keep) });
        match renamed {
            // The file system cannot do both in one step.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                if self.inode(name.as_str())?.is_some() {
                    return Err(io::Error::from_raw_os_error(libc::EEXIST));
                }
                // SAFETY: the strings live during the call.
                checked(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) })?;
            }
            other => {
                other?;
            }
        }
        self.file.sync_all()
    }

    /// Remove the partial file, unless its name has another file than `partial`.
    pub fn remove_partial(&self, name: &FileName, partial: &File) -> io::Result<()> {
        if !self.leads_to(&name.partial(), partial)? {
            return Ok(());
        }
        let path = CString::new(name.partial())?;
        // SAFETY: the string lives during the call.
        checked(unsafe { libc::unlinkat(self.fd(), path.as_ptr(), 0) }).map(|_| ())
    }

    /// Bytes that this process may still write.
    pub fn free_bytes(&self) -> io::Result<u64> {
        // SAFETY: all zeroes is a valid statvfs, and the call only writes to it.
        let about = unsafe {
            let mut about: libc::statvfs = mem::zeroed();
            checked(libc::fstatvfs(self.fd(), &mut about))?;
            about
        };
        Ok(about.f_bavail as u64 * about.f_frsize as u64)
    }

    fn open_at(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        let name = CString::new(name)?;
        // Without O_NONBLOCK, opening a named pipe would wait for its other end.
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the string lives during the call, and nothing else owns the new descriptor.
        unsafe {
            let fd = checked(libc::openat(self.fd(), name.as_ptr(), flags, MODE))?;
            Ok(File::from_raw_fd(fd))
        }
    }

    fn leads_to(&self, name: &str, file: &File) -> io::Result<bool> {
        let about = file.metadata()?;
        Ok(self.inode(name)? == Some((about.dev(), about.ino())))
    }

    fn inode(&self, name: &str) -> io::Result<Option<(u64, u64)>> {
        let name = CString::new(name)?;
        // SAFETY: all zeroes is a valid stat, the call only writes to it, and the string lives during the call.
        let (result, about) = unsafe {
            let mut about: libc::stat = mem::zeroed();
            (libc::fstatat(self.fd(), name.as_ptr(), &mut about, libc::AT_SYMLINK_NOFOLLOW), about)
        };
        match checked(result) {
            Ok(_) => Ok(Some((about.st_dev, about.st_ino))),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
