//! The rule on jobs whose truth is known: planted stragglers are named, ranks that are alike are not.

use super::*;

/// S. Vigna's SplitMix64, and what can be drawn from it.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// How ranks come late by chance; a step takes 1.5.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// New in every step.
    White(f64),
    /// The next step's is the last one's times the factor, and something new.
    Autoregressive { factor: f64, deviation: f64 },
    /// Late by about half a step for that many steps on average, then not for twice as many.
    Regimes(f64),
    /// Rare and very long stalls.
    Stalls,
}

impl Noise {
    fn arrivals(self, steps: usize, random: &mut Random) -> Vec<f64> {
        let mut level = random.normal();
        let mut on = random.unit() < 1.0 / 3.0;
        (0..steps)
            .map(|_| match self {
                Self::White(scale) => scale * random.exponential(),
                Self::Autoregressive { factor, deviation } => {
                    level = factor * level + (1.0 - factor * factor).sqrt() * random.normal();
                    deviation * level
                }
                Self::Regimes(steps) => {
                    let leave = if on { 1.0 / steps } else { 0.5 / steps };
                    on ^= random.unit() < leave;
                    0.05 * random.exponential() + if on { 0.5 + 0.1 * random.normal() } else { 0.0 }
                }
                Self::Stalls => 0.02 * random.unit().max(1e-6).powf(-0.8),
            })
            .collect()
    }
}

/// Lateness over the lower median of the others, as the analysis has it.
fn lateness(arrivals: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let steps = arrivals[0].len();
    let mut late = vec![vec![0.0; steps]; arrivals.len()];
    for step in 0..steps {
        for (rank, late) in late.iter_mut().enumerate() {
            let mut others: Vec<f64> =
                arrivals.iter().enumerate().filter(|one| one.0 != rank).map(|one| one.1[step]).collect();
            others.sort_by(f64::total_cmp);
            late[step] = (arrivals[rank][step] - others[(others.len() - 1) / 2]).max(0.0);
        }
    }
    late
}

fn job(noise: Noise, ranks: usize, steps: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (ranks * 1009 + steps) as u64);
    (0..ranks).map(|_| noise.arrivals(steps, &mut random)).collect()
}

/// Jobs of ranks that are alike in which a straggler is claimed.
fn false_claims(noise: Noise, ranks: usize, steps: usize, jobs: u64) -> usize {
    (0..jobs)
        .filter(|&seed| !judge(&lateness(&job(noise, ranks, steps, seed)), 1.5 * steps as f64).is_empty())
        .count()
}

const SIZES: [(usize, usize); 8] =
    [(2, 12), (2, 40), (2, 100), (3, 100), (4, 12), (4, 100), (8, 40), (8, 200)];

#[test]
fn ranks_that_are_late_by_chance_are_never_claimed() {
    let ar = |factor| Noise::Autoregressive { factor, deviation: 0.3 };
    for noise in [Noise::White(0.3), Noise::White(3.0), ar(0.5), Noise::Stalls] {
        for (ranks, steps) in SIZES {
            assert_eq!(false_claims(noise, ranks, steps, 200), 0, "{noise:?}, {ranks} ranks, {steps} steps");
        }
    }
}

#[test]
fn lateness_that_lasts_for_many_steps_is_not_taken_for_a_habit() {
    let ar = |factor| Noise::Autoregressive { factor, deviation: 0.3 };
    // Conditions change about ten times during the run: at most one job in a hundred.
    for (noise, lasts) in [(ar(0.8), 4), (ar(0.9), 10), (ar(0.95), 20), (Noise::Regimes(5.0), 7)] {
        for ranks in [2, 3, 4, 8] {
            for steps in [lasts * 10, lasts * 20] {
                let claimed = false_claims(noise, ranks, steps, 200);
                assert!(claimed <= 2, "{noise:?}, {ranks} ranks, {steps} steps: {claimed} of 200");
            }
        }
    }
}

/// Rank 1 comes later by what `plant` says of the step.
fn planted(ranks: usize, steps: usize, seed: u64, plant: impl Fn(usize) -> f64) -> Vec<Claim> {
    let mut arrivals = job(Noise::White(0.03), ranks, steps, seed);
    arrivals[1].iter_mut().enumerate().for_each(|(step, at)| *at += plant(step));
    judge(&lateness(&arrivals), 1.5 * steps as f64)
}

fn assert_named(claims: &[Claim], pattern: Pattern) -> &Claim {
    assert_eq!(claims.len(), 1, "{claims:?}");
    assert_eq!((claims[0].rank, claims[0].pattern), (1, pattern));
    &claims[0]
}

#[test]
fn a_rank_that_is_late_throughout_is_named() {
    for seed in 0..100 {
        for (ranks, steps) in SIZES {
            let claims = planted(ranks, steps, seed, |_| 1.0);
            let claim = assert_named(&claims, Pattern::Throughout);
            assert_eq!(claim.late.len(), steps);
            assert!(claim.excess_to_noise.is_some_and(|ratio| ratio > 5.0));
        }
    }
}

#[test]
fn a_rank_that_is_late_in_every_fifth_step_is_named_with_its_steps() {
    for seed in 0..100 {
        for ranks in [2, 4, 8] {
            let claims = planted(ranks, 100, seed, |step| if step % 5 == 2 { 1.0 } else { 0.0 });
            let claim = assert_named(&claims, Pattern::SomeSteps);
            let late = |step: &usize| claim.late.contains(step);
            assert_eq!((0..100).filter(late).filter(|step| step % 5 == 2).count(), 20);
            // Noise may add a step or two.
            assert!(claim.late.len() <= 22, "{:?}", claim.late);
        }
    }
}

#[test]
fn a_rank_that_becomes_slower_is_drifting() {
    for seed in 0..100 {
        for ranks in [2, 4, 8] {
            assert_named(&planted(ranks, 100, seed, |step| 0.005 * step as f64), Pattern::Drifting);
        }
    }
}

#[test]
fn a_rank_that_is_slow_from_the_middle_on_is_late_in_some_steps() {
    for ranks in [4, 8] {
        let claims = planted(ranks, 100, 7, |step| if step < 50 { 0.0 } else { 0.5 });
        assert_eq!(assert_named(&claims, Pattern::SomeSteps).late, (50..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_single_stall_or_a_single_spell_is_not_a_habit() {
    assert_eq!(planted(4, 100, 1, |step| if step == 30 { 300.0 } else { 0.0 }), []);
    assert_eq!(planted(4, 100, 1, |step| if (30..50).contains(&step) { 0.5 } else { 0.0 }), []);
}

#[test]
fn another_ranks_stall_does_not_hide_a_straggler() {
    let mut arrivals = job(Noise::White(0.03), 4, 100, 3);
    arrivals[1].iter_mut().for_each(|at| *at += 0.5);
    arrivals[3][40] += 500.0;
    let claims = judge(&lateness(&arrivals), 150.0);
    assert_named(&claims, Pattern::Throughout);
}

#[test]
fn all_ranks_of_a_slow_host_are_named() {
    let mut arrivals = job(Noise::White(0.03), 32, 100, 5);
    arrivals[8..12].iter_mut().flatten().for_each(|at| *at += 0.5);
    let mut named: Vec<usize> = judge(&lateness(&arrivals), 150.0).iter().map(|claim| claim.rank).collect();
    named.sort_unstable();
    assert_eq!(named, [8, 9, 10, 11]);
}

#[test]
fn what_costs_little_or_was_seen_in_few_steps_is_not_claimed() {
    assert_eq!(planted(4, 100, 1, |_| 0.06), [], "4 % of a step");
    assert_eq!(planted(4, 9, 1, |_| 0.5), [], "9 steps");
    assert_eq!(judge(&[vec![1.0; 100]], 150.0), [], "one rank");
    assert_eq!(judge(&vec![vec![1.0; 100]; 3], 0.0), [], "no time");
    assert_eq!(judge(&[], 1.0), []);
}

#[test]
fn lateness_that_never_varies_leaves_no_doubt() {
    let mut late = vec![vec![0.0; 20]; 3];
    late[2] = vec![0.5; 20];
    let claims = judge(&late, 30.0);
    assert_eq!(claims.len(), 1);
    assert_eq!(
        (claims[0].rank, claims[0].pattern, claims[0].excess_to_noise),
        (2, Pattern::Throughout, None)
    );
}
