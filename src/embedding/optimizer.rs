//! Optimizers: a kind, and parameters that may be changed between steps.

use crate::error::{Result, ensure, fail};
use crate::platform::learning::{OptimizerKind, Rule};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The parameters of all optimizers, by their places in [`Optimizer::values`].
const WEIGHT_DECAY: usize = 0;
const EPSILON: usize = 1;
const BETA1: usize = 2;
const BETA2: usize = 3;
const ALPHA: usize = 4;
const ADAM_W: usize = 5;

/// Names and defaults, in the same order.
const PARAMETERS: [(&str, f32); 6] = [
    ("weight_decay", 0.0),
    ("epsilon", 1e-8),
    ("beta1", 0.9),
    ("beta2", 0.999),
    ("alpha", 0.99),
    ("adam_w", 0.0),
];

/// The state of every row that keeps the powers of Adam's betas.
pub const BETA_POWERS: &CStr = c"beta12t";

/// One optimizer may serve any number of embeddings, which hold it as long as they live.
pub struct Optimizer {
    kind: OptimizerKind,
    /// The bits of the f32 values.
    values: [AtomicU32; PARAMETERS.len()],
}

impl OptimizerKind {
    /// As the headers have it, behind `WHOLEMEMORY_OPT_`.
    fn name(self) -> &'static str {
        match self {
            OptimizerKind::Sgd => "SGD",
            OptimizerKind::LazyAdam => "LAZY_ADAM",
            OptimizerKind::RmsProp => "RMSPROP",
            OptimizerKind::AdaGrad => "ADAGRAD",
        }
    }

    /// The parameters that the optimizer has.
    fn parameters(self) -> &'static [usize] {
        match self {
            OptimizerKind::Sgd => &[WEIGHT_DECAY],
            OptimizerKind::LazyAdam => &[WEIGHT_DECAY, EPSILON, BETA1, BETA2, ADAM_W],
            OptimizerKind::RmsProp => &[WEIGHT_DECAY, EPSILON, ALPHA],
            OptimizerKind::AdaGrad => &[WEIGHT_DECAY, EPSILON],
        }
    }

    /// The names of the states, first those of the size of a row in their order in memory.
    pub fn state_names(self) -> &'static [&'static CStr] {
        match self {
            OptimizerKind::Sgd => &[],
            OptimizerKind::LazyAdam => &[c"m", c"v", BETA_POWERS],
            OptimizerKind::RmsProp => &[c"v"],
            OptimizerKind::AdaGrad => &[c"state_sum"],
        }
    }
}

/// The names of every optimizer's states.
pub fn state_name_sets() -> [&'static [&'static CStr]; OptimizerKind::ALL.len()] {
    OptimizerKind::ALL.map(OptimizerKind::state_names)
}

impl Optimizer {
    /// # Errors
    /// NOT_IMPLEMENTED for values that are no optimizer, NONE among them.
    pub fn new(optimizer_type: u32) -> Result<Optimizer> {
        let found = OptimizerKind::ALL
            .into_iter()
            .find(|kind| *kind as u32 == optimizer_type);
        let Some(kind) = found else {
            fail!(
                NotImplemented,
                "optimizer_type is {}; there are {}",
                optimizer_type as i32,
                OptimizerKind::ALL
                    .map(|kind| format!("{} {}", kind as u32, kind.name()))
                    .join(", ")
            );
        };
        Ok(Optimizer {
            kind,
            values: PARAMETERS.map(|(_, default)| AtomicU32::new(default.to_bits())),
        })
    }

    pub fn kind(&self) -> OptimizerKind {
        self.kind
    }

    /// Takes effect with the next step.
    /// # Errors
    /// INVALID_INPUT for a name that the optimizer does not have.
    pub fn set(&self, name: &str, value: f32) -> Result<()> {
        let own = self.kind.parameters();
        let found = own.iter().find(|place| PARAMETERS[**place].0 == name);
        ensure!(
            found.is_some(),
            InvalidInput,
            "parameter_name is \"{name}\"; {} has {} (the learning rate is an argument of the step)",
            self.kind.name(),
            own.iter()
                .map(|place| PARAMETERS[*place].0)
                .collect::<Vec<_>>()
                .join(", ")
        );
        if let Some(place) = found {
            self.values[*place].store(value.to_bits(), Ordering::Relaxed);
        }
        Ok(())
    }

    fn value(&self, place: usize) -> f32 {
        match self.kind.parameters().contains(&place) {
            true => f32::from_bits(self.values[place].load(Ordering::Relaxed)),
            false => 0.0,
        }
    }

    /// The optimizer as a step at this moment uses it.
    pub fn rule(&self, learning_rate: f32) -> Rule {
        Rule {
            optimizer: self.kind,
            adam_w: u32::from(self.value(ADAM_W) > 0.5),
            learning_rate,
            weight_decay: self.value(WEIGHT_DECAY),
            epsilon: self.value(EPSILON),
            beta1: self.value(BETA1),
            beta2: self.value(BETA2),
            alpha: self.value(ALPHA),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_names_are_those_of_the_interface() {
        let adam = Optimizer::new(2).unwrap();
        let rule = adam.rule(0.5);
        assert_eq!(
            (rule.learning_rate, rule.weight_decay, rule.epsilon),
            (0.5, 0.0, 1e-8)
        );
        assert_eq!(
            (rule.beta1, rule.beta2, rule.alpha, rule.adam_w),
            (0.9, 0.999, 0.0, 0)
        );
        let rms = Optimizer::new(3).unwrap().rule(0.1);
        assert_eq!((rms.alpha, rms.beta1, rms.epsilon), (0.99, 0.0, 1e-8));
        let names: Vec<Vec<&str>> = (1..=4)
            .map(|kind| {
                let names = Optimizer::new(kind).unwrap().kind().state_names();
                names.iter().map(|name| name.to_str().unwrap()).collect()
            })
            .collect();
        assert_eq!(
            names,
            [vec![], vec!["m", "v", "beta12t"], vec!["v"], vec!["state_sum"]]
        );
        for kind in OptimizerKind::ALL {
            let powers = usize::from(kind.has_beta_powers());
            assert_eq!(kind.state_names().len(), kind.element_states() + powers);
        }
    }

    #[test]
    fn parameters_take_effect_and_unknown_ones_are_named() {
        let adam = Optimizer::new(2).unwrap();
        for (value, adam_w) in [(0.5, 0), (0.51, 1), (f32::NAN, 0), (1.0, 1)] {
            adam.set("adam_w", value).unwrap();
            assert_eq!(adam.rule(0.1).adam_w, adam_w);
        }
        adam.set("beta1", 0.8).unwrap();
        assert_eq!(adam.rule(0.1).beta1, 0.8);
        let sgd = Optimizer::new(1).unwrap();
        for name in ["epsilon", "beta1", "lr", "", "adam_w"] {
            let error = sgd.set(name, 1.0).unwrap_err();
            assert!(error.what.contains(&format!("\"{name}\"")) && error.what.contains("weight_decay"));
        }
        for none in [0, 5, 99, u32::MAX] {
            let error = Optimizer::new(none).err().unwrap();
            assert_eq!(error.kind, crate::error::Kind::NotImplemented);
        }
    }
}
