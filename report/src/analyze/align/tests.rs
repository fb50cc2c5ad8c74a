//! Clocks with known offsets and drifts.

use super::*;

const SECOND_NS: f64 = 1e9;

/// S. Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [-1, 1).
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    fn exponential(&mut self) -> f64 {
        -(0.5 - self.signed() / 2.0).max(1e-300).ln()
    }
}

#[derive(Clone, Copy)]
struct TrueClock {
    base_ns: i64,
    drift: f64,
}

impl TrueClock {
    fn local_ns(self, true_ns: f64) -> i64 {
        self.base_ns + true_ns as i64 + (self.drift * true_ns).round() as i64
    }
}

/// A job whose communicators are given by their clocks.
struct Job<'a> {
    clocks: Vec<TrueClock>,
    communicators: &'a [&'a [u32]],
    collectives: u32,
    length_ns: f64,
    noise_ns: f64,
    /// One end in so many is off by milliseconds.
    outliers: u64,
    random: Random,
}

impl<'a> Job<'a> {
    fn new(clocks: usize, communicators: &'a [&'a [u32]], seed: u64) -> Self {
        let mut random = Random(seed);
        let clocks = (0..clocks)
            .map(|_| TrueClock {
                base_ns: (random.signed() * 5.0 * SECOND_NS) as i64,
                drift: random.signed() * 100e-6,
            })
            .collect();
        Self {
            clocks,
            communicators,
            collectives: 400,
            length_ns: 100.0 * SECOND_NS,
            noise_ns: 5_000.0,
            outliers: u64::MAX,
            random,
        }
    }

    fn aligner(&mut self) -> Aligner {
        let mut aligner = Aligner::new(vec![1; self.clocks.len()]);
        for number in 0..self.collectives {
            for (communicator, members) in (0..).zip(self.communicators) {
                let end = self.length_ns * f64::from(number) / f64::from(self.collectives);
                let parts: Vec<ClockedPart> = members
                    .iter()
                    .map(|&clock| {
                        let mut seen = end + self.noise_ns * self.random.exponential();
                        if self.random.next().is_multiple_of(self.outliers) {
                            seen += 3e6 * self.random.exponential();
                        }
                        let local = self.clocks[clock as usize];
                        ClockedPart {
                            clock,
                            start_ns: local.local_ns(end - 1e6),
                            end_ns: local.local_ns(seen),
                        }
                    })
                    .collect();
                aligner.add(communicator, &parts);
            }
        }
        aligner
    }

    /// The largest error of the time scale of `clock` anywhere in the run.
    fn error_ns(&self, alignment: &Alignment, clock: u32) -> f64 {
        let first = self.clocks[0];
        (0..=10)
            .map(|tenth| {
                let at = self.length_ns * f64::from(tenth) / 10.0;
                let local = self.clocks[clock as usize].local_ns(at);
                (alignment.to_common_ns(clock, local) - first.local_ns(at)).abs() as f64
            })
            .fold(0.0, f64::max)
    }
}

#[test]
fn offsets_and_drifts_are_recovered_within_the_noise() {
    for seed in 0..10 {
        let mut job = Job::new(8, &[&[0, 1, 2, 3, 4, 5, 6, 7]], seed);
        let alignment = job.aligner().finish();
        for clock in 1..8 {
            let error = job.error_ns(&alignment, clock);
            assert!(error < job.noise_ns / 2.0, "seed {seed}, clock {clock}: {error} ns");
            let uncertainty = alignment.uncertainty_ns(clock) as f64;
            assert!(error < uncertainty && uncertainty < 3.0 * job.noise_ns, "{error} {uncertainty}");
            let drift = ((1.0 + job.clocks[clock as usize].drift) / (1.0 + job.clocks[0].drift) - 1.0) * 1e6;
            assert!((alignment.drift_ppm(clock) - drift).abs() < 0.05, "{drift}");
        }
        assert_eq!(alignment.uncertainty_ns(0), 0);
        assert_eq!(alignment.to_common_ns(0, 123_456_789), 123_456_789);
    }
}

#[test]
fn outliers_do_not_move_the_fit() {
    for seed in 0..10 {
        let mut job = Job { outliers: 5, ..Job::new(6, &[&[0, 1, 2], &[2, 3, 4, 5], &[0, 5]], seed) };
        let alignment = job.aligner().finish();
        for clock in 1..6 {
            let error = job.error_ns(&alignment, clock);
            assert!(error < job.noise_ns, "seed {seed}, clock {clock}: {error} ns");
            assert!(error < alignment.uncertainty_ns(clock) as f64);
        }
    }
}

/// A chain of pairs: each clock is known only through the one before.
#[test]
fn clocks_are_joined_through_others() {
    let pairs: Vec<[u32; 2]> = (0..15).map(|clock| [clock, clock + 1]).collect();
    let communicators: Vec<&[u32]> = pairs.iter().map(|pair| &pair[..]).collect();
    for seed in 0..5 {
        let mut job = Job::new(16, &communicators, seed);
        let alignment = job.aligner().finish();
        assert_eq!(alignment.parts(), 1);
        for clock in 1..16 {
            let error = job.error_ns(&alignment, clock);
            // Errors add up in squares: sixteen clocks are four times as uncertain as one.
            assert!(error < 2.0 * job.noise_ns, "seed {seed}, clock {clock}: {error} ns");
            assert!(error < alignment.uncertainty_ns(clock) as f64);
        }
        assert!(alignment.uncertainty_ns(15) > alignment.uncertainty_ns(1));
    }
}

#[test]
fn parts_that_share_no_collective_are_not_aligned() {
    let mut job = Job::new(6, &[&[0, 3], &[1, 2, 4]], 1);
    let alignment = job.aligner().finish();
    assert_eq!(alignment.parts(), 3);
    let aligned: Vec<u32> = (0..6).filter(|&clock| alignment.is_aligned(clock)).collect();
    assert_eq!(aligned, [1, 2, 4]);
    assert_eq!(alignment.between_ns(0, 1), None);
    assert!(alignment.between_ns(0, 3).is_some());
    // Within its part, a clock is aligned all the same.
    assert!(job.error_ns(&alignment, 3) < job.noise_ns);
    assert_eq!(alignment.to_common_ns(5, 77), 77);
}

#[test]
fn clocks_may_be_decades_apart_and_lose_no_nanosecond() {
    let mut job = Job { noise_ns: 0.0, ..Job::new(3, &[&[0, 1, 2]], 3) };
    job.clocks[1].base_ns = 1_700_000_000 * 1_000_000_000;
    job.clocks[2].base_ns = -4_000_000_000_000_000_000;
    let alignment = job.aligner().finish();
    for clock in 1..3 {
        assert!(job.error_ns(&alignment, clock) <= 2.0, "{}", job.error_ns(&alignment, clock));
        assert!(alignment.uncertainty_ns(clock) <= 2);
    }
}

#[test]
fn few_collectives_leave_the_offset_open_by_their_duration() {
    let mut aligner = Aligner::new(vec![1, 1]);
    let part = |clock, start_ns, end_ns| ClockedPart { clock, start_ns, end_ns };
    aligner.add(0, &[part(0, 100, 900), part(1, 5_400, 5_900)]);
    aligner.add(0, &[part(0, 10_100, 10_300), part(1, 15_100, 15_300)]);
    let alignment = aligner.finish();
    assert!((alignment.offset_ns(1, 1000) - 5_000).abs() <= 1);
    // No part of the second one ends before the other begins.
    assert_eq!(alignment.uncertainty_ns(1), 200);
}

#[test]
fn a_short_run_does_not_invent_a_drift() {
    for seed in 0..20 {
        let mut job =
            Job { collectives: 10, length_ns: 5e6, noise_ns: 20_000.0, ..Job::new(2, &[&[0, 1]], seed) };
        job.clocks.iter_mut().for_each(|clock| clock.drift = 0.0);
        let alignment = job.aligner().finish();
        // 20 µs over 5 ms would be 4000 ppm.
        assert!(alignment.drift_ppm(1).abs() < 50.0, "{}", alignment.drift_ppm(1));
    }
}

#[test]
fn memory_is_bounded_and_the_result_as_good() {
    let mut job = Job { collectives: 20_000, ..Job::new(8, &[&[0, 1, 2, 3, 4, 5, 6, 7]], 9) };
    let mut aligner = job.aligner();
    assert!(aligner.kept <= 512 * 8);
    let alignment = std::mem::replace(&mut aligner, Aligner::new(Vec::new())).finish();
    assert!(job.error_ns(&alignment, 7) < job.noise_ns / 2.0);

    let members: Vec<u32> = (0..8).collect();
    let communicators: Vec<&[u32]> = vec![&members; 64];
    let mut job = Job { collectives: 100, ..Job::new(8, &communicators, 9) };
    let mut aligner = Aligner::with_max_kept(vec![1; 8], 10_000);
    aligner.communicators = job.aligner().communicators;
    aligner.kept = aligner.communicators.values().map(Samples::kept).sum();
    let part = |clock| ClockedPart { clock, start_ns: 0, end_ns: 1 };
    assert!(aligner.kept > 10_000);
    aligner.add(99, &[part(0), part(1)]);
    assert!(aligner.kept <= 10_000, "{}", aligner.kept);
}

#[test]
fn nonsense_is_survived() {
    let part = |clock, start_ns, end_ns| ClockedPart { clock, start_ns, end_ns };
    let mut aligner = Aligner::new(vec![1, 1, 1]);
    aligner.add(0, &[]);
    aligner.add(0, &[part(7, 0, 1), part(9, 0, 1)]);
    aligner.add(0, &[part(0, i64::MAX, i64::MIN), part(1, 0, i64::MIN)]);
    aligner.add(1, &[part(0, i64::MIN, i64::MAX), part(1, i64::MAX, i64::MIN + 1)]);
    aligner.add(1, &[part(0, 0, i64::MIN + 1), part(1, 0, i64::MAX), part(2, 5, 5)]);
    let alignment = aligner.finish();
    for clock in 0..4 {
        alignment.to_common_ns(clock, i64::MIN);
        alignment.to_local_ns(clock, i64::MAX);
        alignment.uncertainty_ns(clock);
    }
}
