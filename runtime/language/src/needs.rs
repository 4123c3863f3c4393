//! Order in which the steps of a plan can run.

use std::collections::BTreeSet;

use super::plan::{Step, Workflow};

impl Workflow {
    /// True if its steps run by their needs rather than one after another.
    #[must_use]
    pub fn is_graph(&self) -> bool {
        self.steps.iter().any(|step| step.needs.is_some())
    }

    /// For each step's index, the indexes of the steps that it needs.
    #[must_use]
    pub fn needed_steps(&self) -> Vec<Vec<usize>> {
        let index = |id: &String| self.steps.iter().position(|step| step.id == *id);
        self.steps.iter().map(|step| step.needs.iter().flatten().filter_map(index).collect()).collect()
    }

    /// Indexes of its steps, each after the steps that it needs; otherwise in the order of the file.
    #[must_use]
    pub fn execution_order(&self) -> Vec<usize> {
        let needs = self.needed_steps();
        let mut order = Vec::with_capacity(self.steps.len());
        let mut left: BTreeSet<usize> = (0..self.steps.len()).collect();
        // A file with a cycle was rejected; steps that remain of one keep their order.
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
    /// True if its condition refers to the step `id`, so that the condition decides what happens if
    /// that step is skipped.
    #[must_use]
    pub fn asks_about(&self, id: &str) -> bool {
        self.when.all_references().iter().any(|reference| reference.id == id)
    }
}
