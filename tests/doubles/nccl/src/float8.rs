//! The two 8-bit floating point formats (OCP 8-bit Floating Point Specification, revision 1.0).

/// A format: `e4m3` has no infinities and one NaN, `e5m2` is a short IEEE format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    E4m3,
    E5m2,
}

impl Format {
    const fn mantissa_bits(self) -> u32 {
        match self {
            Format::E4m3 => 3,
            Format::E5m2 => 2,
        }
    }

    const fn bias(self) -> i32 {
        match self {
            Format::E4m3 => 7,
            Format::E5m2 => 15,
        }
    }

    /// The code of the largest finite value.
    const fn largest(self) -> u8 {
        match self {
            Format::E4m3 => 0x7e,
            Format::E5m2 => 0x7b,
        }
    }

    /// The value of a code; exact, since f32 holds them all.
    pub fn decode(self, code: u8) -> f32 {
        let magnitude = code & 0x7f;
        let value = if magnitude <= self.largest() {
            let exponent = i32::from(magnitude >> self.mantissa_bits());
            let mantissa = f32::from(magnitude & ((1 << self.mantissa_bits()) - 1));
            let fraction = mantissa / (1_u32 << self.mantissa_bits()) as f32;
            match exponent {
                0 => fraction * 2_f32.powi(1 - self.bias()),
                _ => (1.0 + fraction) * 2_f32.powi(exponent - self.bias()),
            }
        } else if self == Format::E5m2 && magnitude == 0x7c {
            f32::INFINITY
        } else {
            f32::NAN
        };
        if code & 0x80 == 0 { value } else { -value }
    }

    /// The nearest code, ties to even; too large values become the largest finite one, as CUDA's
    /// conversions saturate.
    pub fn encode(self, value: f32) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return sign | 0x7f;
        }
        let magnitude = value.abs();
        // Codes of positive values are in the order of their values.
        let (mut low, mut high) = (0, self.largest());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.decode(middle) <= magnitude { low = middle } else { high = middle }
        }
        let (below, above) = (magnitude - self.decode(low), self.decode(high) - magnitude);
        let nearest = if below < above || below == above && low % 2 == 0 { low } else { high };
        sign | nearest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_is_encoded_as_itself() {
        for format in [Format::E4m3, Format::E5m2] {
            for code in (0..=format.largest()).chain(0x80..=0x80 | format.largest()) {
                assert_eq!(format.encode(format.decode(code)), code, "{format:?} {code:#x}");
            }
        }
    }

    #[test]
    fn limits_are_those_of_the_specification() {
        assert_eq!(Format::E4m3.decode(0x7e), 448.0);
        assert_eq!(Format::E4m3.decode(0x01), 2_f32.powi(-9));
        assert_eq!(Format::E5m2.decode(0x7b), 57_344.0);
        assert_eq!(Format::E5m2.decode(0x01), 2_f32.powi(-16));
        assert_eq!(Format::E5m2.decode(0xfc), f32::NEG_INFINITY);
        assert!(Format::E4m3.decode(0x7f).is_nan() && Format::E5m2.decode(0x7d).is_nan());
        for format in [Format::E4m3, Format::E5m2] {
            assert_eq!(format.encode(1e9), format.largest(), "too large values saturate");
            assert!(format.decode(format.encode(f32::NAN)).is_nan());
        }
    }
}
