//! Meetings around the rows that ranks move: in the order of their streams where the GPUs can, else on the host.

use crate::comm::Session;
use crate::error::Result;
use crate::platform::{Bootstrap, Platform, Stream};

/// The ranks of a call meet: what their streams did before, all of them see behind it. Nothing to do for one rank. A rank whose
/// stream did not do its work meets the others all the same: that failure is the inner one, with which it goes on taking part.
/// # Errors
/// COMMUNICATION_ERROR. CUDA_ERROR of a rank that cannot come to a meeting of streams: it ends the communicator, since the others
/// would wait for it on their GPUs.
pub fn meet(session: &Session<'_>, stream: Stream) -> Result<Result<()>> {
    meet_by(session, stream, |platform| platform.meet(stream))
}

/// [`meet`] right before rows are moved ([`Platform::meet_before_rows`]).
/// # Errors
/// Those of [`meet`].
pub fn meet_before_rows(session: &Session<'_>, stream: Stream) -> Result<Result<()>> {
    meet_by(session, stream, |platform| platform.meet_before_rows(stream))
}

fn meet_by(
    session: &Session<'_>,
    stream: Stream,
    on_streams: impl FnOnce(&dyn Platform) -> Result<()>,
) -> Result<Result<()>> {
    let platform: &dyn Platform = session.communicator().platform();
    if session.size() == 1 {
        return Ok(Ok(()));
    }
    if platform.meets_on_streams() {
        return match on_streams(platform) {
            Ok(()) => {
                session.tell_step();
                Ok(Ok(()))
            }
            Err(error) => {
                // Of what a spoilt recording would have done nobody waits for anything.
                if !matches!(platform.is_capturing(stream), Ok(true)) {
                    session.break_off(&error);
                }
                Err(error)
            }
        };
    }
    let done = platform.synchronize(stream);
    session.barrier()?;
    Ok(done)
}
