//! Files as the bytes they stand for: decompressed while they are read, by their content.

use super::detect::SNIFF_BYTES;
use super::progress::{Meter, Metered};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

const BUFFER: usize = 1 << 17;
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// An opened file.
pub(super) struct Opened<'m> {
    /// The first bytes of the content; [`reader`](Self::reader) gives them again.
    pub start: Vec<u8>,
    /// The content from its beginning.
    pub reader: Box<dyn Read + Send + 'm>,
    /// Whether the file holds it compressed.
    pub compressed: bool,
}

/// Opens `path`, decompressing gzip and zstd; `meter` hears what is read of the file.
pub(super) fn open<'m>(path: &Path, meter: Option<&'m Meter<'m>>) -> io::Result<Opened<'m>> {
    let mut file = BufReader::with_capacity(BUFFER, Metered::new(File::open(path)?, meter));
    let magic = file.fill_buf()?;
    let gzip = magic.starts_with(GZIP);
    let compressed = gzip || magic.starts_with(ZSTD);
    let mut reader: Box<dyn Read + Send + 'm> = if gzip {
        Box::new(MultiGzDecoder::new(file))
    } else if magic.starts_with(ZSTD) {
        Box::new(Zstd::new(file))
    } else {
        Box::new(file)
    };
    let mut start = vec![0; SNIFF_BYTES];
    let mut length = 0;
    let mut fault = None;
    while length < SNIFF_BYTES {
        match reader.read(&mut start[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                // What precedes the damage is content all the same; whoever reads on meets the error.
                fault = Some(error);
                break;
            }
        }
    }
    if let (0, Some(error)) = (length, &fault) {
        let kind = if gzip { "gzip" } else { "zstd" };
        let what = format!("this is {kind} data, and nothing of it can be decompressed: {error}");
        return Err(io::Error::new(error.kind(), what));
    }
    start.truncate(length);
    let again = Cursor::new(start.clone());
    let reader: Box<dyn Read + Send + 'm> = match fault {
        Some(error) => Box::new(again.chain(Fault(Some(error)))),
        None => Box::new(again.chain(reader)),
    };
    Ok(Opened { start, reader, compressed })
}

/// Fails once, with the error that the content ended with, and is at its end afterwards.
struct Fault(Option<io::Error>);

impl Read for Fault {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The frames of a zstd file, one after the other.
struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Self {
        Self { input, decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Reads the header of the next frame; false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.input.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(self.fault(error)),
            }
        }
    }

    fn fault(&mut self, error: FrameDecoderError) -> io::Error {
        let at_end = self.input.fill_buf().is_ok_and(<[u8]>::is_empty);
        let kind = if at_end { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::InvalidData };
        io::Error::new(kind, error)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let step = BlockDecodingStrategy::UptoBlocks(1);
                if let Err(error) = self.decoder.decode_blocks(&mut self.input, step) {
                    return Err(self.fault(error));
                }
            }
            let read = self.decoder.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let sums = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if let (Some(stored), Some(calculated)) = sums
                && stored != calculated
            {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum does not match"));
            }
            self.in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn content() -> Vec<u8> {
        (0..100_000_u32).flat_map(|i| format!("{},", i.wrapping_mul(i) % 977).into_bytes()).collect()
    }

    /// What can be read of a file with these bytes, and how it ended.
    fn read(bytes: &[u8]) -> (Vec<u8>, Option<io::ErrorKind>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any name");
        std::fs::write(&path, bytes).unwrap();
        let mut out = Vec::new();
        let mut opened = match open(&path, None) {
            Ok(opened) => opened,
            Err(error) => return (out, Some(error.kind())),
        };
        let fault = opened.reader.read_to_end(&mut out).err().map(|error| error.kind());
        assert!(out.starts_with(&opened.start));
        (out, fault)
    }

    #[test]
    fn compression_is_recognised_by_content() {
        let content = content();
        for bytes in [content.clone(), gzip(&content), zstd(&content)] {
            assert_eq!(read(&bytes), (content.clone(), None));
        }
        assert_eq!(read(b""), (Vec::new(), None));
        assert_eq!(read(&gzip(b"")), (Vec::new(), None));
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let content = content();
        let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
        let twice = [content.clone(), content.clone()].concat();
        assert_eq!(read(&[gzip(&content), gzip(&content)].concat()), (twice.clone(), None));
        assert_eq!(read(&[&zstd(&content)[..], skippable, &zstd(&content)].concat()), (twice, None));
    }

    #[test]
    fn a_cut_file_gives_what_precedes_the_cut() {
        let content = content();
        for bytes in [gzip(&content), zstd(&content)] {
            for length in [4, 5, 9, 12, 300, bytes.len() / 2, bytes.len() - 9, bytes.len() - 1] {
                let (out, fault) = read(&bytes[..length]);
                assert_eq!(fault, Some(io::ErrorKind::UnexpectedEof), "{length} of {}", bytes.len());
                assert!(content.starts_with(&out), "{length}");
                assert!(length + 9 < bytes.len() || !out.is_empty(), "{length}");
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let content = content();
        for mut bytes in [gzip(&content), zstd(&content)] {
            let last = bytes.len() - 6;
            bytes[last] ^= 0x55;
            let (_, fault) = read(&bytes);
            assert!(fault.is_some());
        }
    }
}
