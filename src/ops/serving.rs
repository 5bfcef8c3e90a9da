//! Collective calls of ranks that cannot do anything for themselves: whatever keeps them, the others are waiting for them.

use crate::error::{Error, Kind, Result};
use crate::platform::{Platform, Stream};

/// Why what uses a cache is refused to a recording stream.
pub const CACHED_RECORDING: &str = "a cached table is ordered among several streams, which a recording stream (graph capture) cannot take part in";

/// Whether a call may use `stream`: NOT_SUPPORTED with `refusal` while it records, CUDA_ERROR where the driver will not say.
pub fn not_recording(platform: &dyn Platform, stream: Stream, refusal: &str) -> Result<()> {
    match platform.is_capturing(stream) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::new(Kind::NotSupported, refusal)),
        Err(unknown) => Err(unknown),
    }
}

/// Runs a collective call, given what keeps the rank from it (`own`) and the stream to use. A rank that is kept runs it with that
/// failure, so that it takes part with nothing and alone returns it, on a stream that does its work now: a recording stays whole.
/// That stream is waited for, since the scratch may be the recorded graph's, which is replayed when it likes. A rank whose platform
/// cannot be entered takes part with nothing as well.
/// # Errors
/// Those of `call`, CUDA_ERROR.
pub fn take_part(
    platform: &dyn Platform,
    stream: Stream,
    own: Result<()>,
    call: &mut dyn FnMut(Result<()>, Stream) -> Result<()>,
) -> Result<()> {
    let stream = if own.is_ok() {
        stream
    } else {
        platform.side_stream()
    };
    let mut done = None;
    let entered = platform.within(&mut || {
        done = Some(call(own.clone(), stream));
        match own {
            Ok(()) => Ok(()),
            Err(_) => platform.synchronize(stream),
        }
    });
    match done {
        Some(outcome) => outcome.and(entered),
        None => call(own.and(entered), stream),
    }
}
