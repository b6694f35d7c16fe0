//! The replicas that a node holds.

use std::collections::BTreeMap;

use super::{BuildError, Refusal, Role};
use crate::cluster::{NodeId, Placement};
use crate::table::{Config, Table};

/// The replicas of a node by table and partition. A lookup is two loads of small arrays, because each
/// access of a transaction needs one.
#[derive(Debug)]
pub(super) struct Replicas {
    /// By the number of a table, its place in the order of numbers.
    places: Vec<Option<u16>>,
    /// By partition, what the node is for it.
    roles: Vec<Option<Role>>,
    /// By place of the table, then by partition.
    tables: Vec<Option<Table>>,
}

impl Replicas {
    /// Empty replicas of all partitions that `node` holds.
    ///
    /// # Errors
    ///
    /// If a table cannot be built.
    pub(super) fn new(
        node: NodeId,
        placement: &dyn Placement,
        configs: &BTreeMap<u16, Config>,
    ) -> Result<Self, BuildError> {
        let role = |partition| {
            let at = placement.replicas(partition).iter().position(|&of| of == node)?;
            Some(if at == 0 { Role::Primary } else { Role::Backup })
        };
        let roles: Vec<_> = (0..placement.partitions()).map(role).collect();
        let mut places = Vec::new();
        let mut tables = Vec::new();
        for (place, (&number, config)) in configs.iter().enumerate() {
            places.resize(usize::from(number), None);
            places.push(Some(place as u16));
            for role in &roles {
                let table = role.map(|_| config.clone().build().map_err(BuildError::Table));
                tables.push(table.transpose()?);
            }
        }
        Ok(Self { places, roles, tables })
    }

    pub(super) fn get(&self, table: u16, partition: u16) -> Option<&Table> {
        let place = (*self.places.get(usize::from(table))?)?;
        // A partition that does not exist must not be one of the next table.
        let partition = Some(usize::from(partition)).filter(|&at| at < self.roles.len())?;
        self.tables[usize::from(place) * self.roles.len() + partition].as_ref()
    }

    /// The replica for which the node has this role.
    ///
    /// # Errors
    ///
    /// If there is no such table, or the node does not have this role for the partition.
    #[inline]
    pub(super) fn held(&self, table: u16, partition: u16, role: Role) -> Result<&Table, Refusal> {
        if self.places.get(usize::from(table)).copied().flatten().is_none() {
            return Err(Refusal::Table(table));
        }
        let has_role = self.roles.get(usize::from(partition)).copied().flatten() == Some(role);
        let held = if has_role { self.get(table, partition) } else { None };
        held.ok_or(Refusal::Role { partition, role })
    }

    /// Table, partition and contents of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, u16, &Table)> {
        let numbers = (0u16..).zip(&self.places).filter(|(_, place)| place.is_some());
        let all = numbers.flat_map(|(table, _)| {
            (0..self.roles.len() as u16).map(move |partition| (table, partition))
        });
        all.filter_map(|(table, partition)| Some((table, partition, self.get(table, partition)?)))
    }
}
