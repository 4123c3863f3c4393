//! Random bytes that are the same for the same seed, now and on later versions of this host: the output
//! of BLAKE3 keyed by the seed (BLAKE3 paper, section 2.6).

use std::convert::Infallible;

use rand::{Rng, TryRng};

use crate::host::services::Tracer;

/// One stream of seeded random bytes.
pub(crate) struct Seeded(blake3::OutputReader);

impl Seeded {
    /// Streams of different `purpose` are independent.
    pub(crate) fn new(seed: &[u8; 32], purpose: &str) -> Self {
        Self(blake3::Hasher::new_keyed(seed).update(purpose.as_bytes()).finalize_xof())
    }

    pub(crate) fn next_u128(&mut self) -> u128 {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }
}

impl TryRng for Seeded {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(buffer);
        Ok(())
    }
}

/// Real randomness, recorded or answered from a record.
pub(crate) struct Real {
    pub(crate) source: Box<dyn Rng + Send>,
    pub(crate) tracer: Tracer,
}

impl TryRng for Real {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), Infallible> {
        let source = &mut self.source;
        self.tracer.fill_answer("random.get", buffer, |buffer| source.fill_bytes(buffer));
        Ok(())
    }
}
