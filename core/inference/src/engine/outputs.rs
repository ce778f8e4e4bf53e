//! Outputs of a section, in buffers that later runs use again.

use headwater_kernels::{pack_signs, packed_len};

use crate::manifest::{OutputKind, SectionManifest};

/// Outputs of one run, in the order of the section's manifest. A second run of the same size allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    buffers: Vec<Buffer>,
}

#[derive(Clone, Debug)]
struct Buffer {
    kind: OutputKind,
    /// Elements of one sample.
    elements: usize,
    floats: Vec<f32>,
    bits: Vec<u8>,
}

impl Outputs {
    /// Floats of an output, `[batch, shape]`; empty when the output is bits or there is none.
    pub fn floats(&self, output: usize) -> &[f32] {
        self.buffers.get(output).map_or(&[], |buffer| &buffer.floats)
    }

    /// Bits of an output, `[batch, ceil(elements / 8)]`; empty when the output is floats or there is none.
    pub fn bits(&self, output: usize) -> &[u8] {
        self.buffers.get(output).map_or(&[], |buffer| &buffer.bits)
    }

    /// Clears the outputs for a run of this section. For engines.
    pub fn start(&mut self, section: &SectionManifest) {
        let empty = || Buffer { kind: OutputKind::F32, elements: 0, floats: Vec::new(), bits: Vec::new() };
        self.buffers.resize_with(section.outputs.len(), empty);
        for (buffer, output) in self.buffers.iter_mut().zip(&section.outputs) {
            (buffer.kind, buffer.elements) = (output.kind, output.elements());
            buffer.floats.clear();
            buffer.bits.clear();
        }
    }

    /// Appends one sample's packed bits to an output of bits. For engines.
    ///
    /// # Panics
    /// For an output that [`Outputs::start`] did not make.
    pub fn append_bits(&mut self, output: usize, bits: &[u8]) {
        self.buffers[output].bits.extend_from_slice(bits);
    }

    /// Appends the values of whole samples to an output; an output of bits packs the signs of the values. For engines.
    ///
    /// # Panics
    /// For an output that [`Outputs::start`] did not make.
    pub fn append(&mut self, output: usize, values: &[f32]) {
        let buffer = &mut self.buffers[output];
        match buffer.kind {
            OutputKind::F32 => buffer.floats.extend_from_slice(values),
            OutputKind::Bits => {
                for sample in values.chunks_exact(buffer.elements.max(1)) {
                    let start = buffer.bits.len();
                    buffer.bits.resize(start + packed_len(sample.len()), 0);
                    pack_signs(sample, &mut buffer.bits[start..]);
                }
            }
        }
    }
}
