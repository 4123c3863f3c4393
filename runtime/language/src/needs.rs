//! In which order the steps of a plan can run.

use std::collections::BTreeSet;

use super::plan::{Step, Workflow};

impl Workflow {
    /// Whether its steps run by what they need, and not one after the other.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        self.steps.iter().any(|step| step.needs.is_some())
    }

    /// By each step's index, the indexes of the steps that it needs.
    #[must_use]
    pub fn needs(&self) -> Vec<Vec<usize>> {
        let index = |id: &String| self.steps.iter().position(|step| step.id == *id);
        self.steps.iter().map(|step| step.needs.iter().flatten().filter_map(index).collect()).collect()
    }

    /// The indexes of its steps, each after those that it needs; that of the file as far as can be.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let needs = self.needs();
        let mut order = Vec::with_capacity(self.steps.len());
        let mut left: BTreeSet<usize> = (0..self.steps.len()).collect();
        // A file with a circle was refused; what is left of one stays in its order.
        while let Some(next) = left
            .iter()
            .copied()
            .find(|index| needs[*index].iter().all(|need| !left.contains(need)))
            .or_else(|| left.first().copied())
        {
            left.remove(&next);
            order.push(next);
        }
        order
    }
}

impl Step {
    /// Whether its condition speaks of another step, so that it decides what becomes of it
    /// when that one is skipped.
    #[must_use]
    pub fn asks_about(&self, id: &str) -> bool {
        self.when.references().iter().any(|reference| reference.id == id)
    }
}
