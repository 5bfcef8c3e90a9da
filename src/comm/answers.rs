//! What the rendezvous and its ranks write to each other.

use super::place::Place;
use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result};

/// A rank announces itself, and its answer: everybody's place, or why there is no communicator.
pub const HELLO: u8 = 16;
pub const TABLE: u8 = 17;
/// A rank's word on whether it is connected to rank 0, and the answer for all.
pub const VERDICT: u8 = 18;
pub const RESULT: u8 = 19;

pub fn answer_of(result: &Result<Vec<Place>>) -> Vec<u8> {
    match result {
        Err(error) => Writer::default().u32(error.kind.code()).text(&error.what).0,
        Ok(places) => places.iter().fold(Writer::default().u32(0), |w, p| p.write(w)).0,
    }
}

pub fn read_answer(bytes: &[u8], size: usize) -> Result<Vec<Place>> {
    let unreadable = || Error::new(Kind::Communication, "the rendezvous sent an unreadable answer");
    let mut reader = Reader(bytes);
    match reader.u32().ok_or_else(unreadable)? {
        0 => (0..size)
            .map(|_| Place::read(&mut reader).ok_or_else(unreadable))
            .collect(),
        code => Err(Error::new(
            Kind::from_code(code),
            reader.text().ok_or_else(unreadable)?,
        )),
    }
}

pub fn verdict_of(result: &Result<()>) -> Vec<u8> {
    let (code, text) = result
        .as_ref()
        .err()
        .map_or((0, ""), |e| (e.kind.code(), e.what.as_str()));
    Writer::default().u32(code).text(text).0
}

pub fn read_verdict(bytes: &[u8]) -> Option<Result<()>> {
    let mut reader = Reader(bytes);
    let (code, text) = (reader.u32()?, reader.text()?);
    Some(if code == 0 {
        Ok(())
    } else {
        Err(Error::new(Kind::from_code(code), text))
    })
}
