//! The direct serialization graph: which transaction must come before which, and why.

/// Why one transaction comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The second overwrote a version of the first.
    WriteWrite,
    /// The second read a version of the first.
    WriteRead,
    /// The second overwrote a version that the first read.
    ReadWrite,
    /// The first ended before the second began.
    RealTime,
    /// From a junction: the rest of an edge that began with one of the other kinds.
    Through,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const WRITES: Self = Self::of(&[Kind::WriteWrite]);
    pub(super) const READS_AND_WRITES: Self = Self::of(&[Kind::WriteWrite, Kind::WriteRead]);
    pub(super) const DEPENDENCIES: Self =
        Self::of(&[Kind::WriteWrite, Kind::WriteRead, Kind::ReadWrite]);
    pub(super) const ALL: Self =
        Self::of(&[Kind::WriteWrite, Kind::WriteRead, Kind::ReadWrite, Kind::RealTime]);

    const fn of(kinds: &[Kind]) -> Self {
        // Junctions lead nowhere unless an edge of one of the other kinds leads to them.
        let mut set = 1 << Kind::Through as u8;
        let mut at = 0;
        while at < kinds.len() {
            set |= 1 << kinds[at] as u8;
            at += 1;
        }
        Self(set)
    }

    pub(super) const fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

/// An edge. The place and the version say where it comes from, for the explanation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) kind: Kind,
    pub(super) place: u32,
    pub(super) version: u64,
}

/// Edges by their source. The first nodes are the transactions; the others are junctions, which join
/// many sources to many targets with few edges.
#[derive(Debug)]
pub(super) struct Graph {
    edges: Vec<Edge>,
    /// Where the edges of each node begin, and the end.
    starts: Vec<u32>,
}

/// A graph in the making.
#[derive(Debug)]
pub(super) struct Builder {
    nodes: u32,
    edges: Vec<Edge>,
}

impl Builder {
    pub(super) fn new(transactions: usize) -> Self {
        Self { nodes: index(transactions), edges: Vec::new() }
    }

    /// Adds a junction.
    pub(super) fn junction(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds an edge between two nodes. Returns false and adds nothing if they are the same.
    pub(super) fn edge(
        &mut self,
        from: u32,
        to: u32,
        kind: Kind,
        place: usize,
        version: u64,
    ) -> bool {
        if from == to {
            return false;
        }
        self.edges.push(Edge { from, to, kind, place: index(place), version });
        true
    }

    /// Adds the edges of real time: from each transaction to those that began after it had ended. The
    /// spans are nodes with the times at which they began and ended; none if never.
    ///
    /// Their number is linear. Each moment at which transactions have ended is a junction, to which
    /// they lead, and which leads to the next moment and to the transactions that begin until then.
    pub(super) fn real_time(&mut self, spans: impl Iterator<Item = (u32, u64, Option<u64>)>) {
        // At equal times, begins come first: nothing is known of the order then.
        let mut events: Vec<(u64, bool, u32)> = Vec::new();
        for (node, began, ended) in spans {
            events.push((began, false, node));
            events.extend(ended.map(|ended| (ended, true, node)));
        }
        events.sort_unstable();
        let (mut moment, mut has_begun) = (None, true);
        for (_, ends, node) in events {
            if !ends {
                if let Some(moment) = moment {
                    self.edge(moment, node, Kind::Through, 0, 0);
                }
                has_begun = true;
                continue;
            }
            if has_begun {
                let next = self.junction();
                if let Some(last) = moment.replace(next) {
                    self.edge(last, next, Kind::Through, 0, 0);
                }
                has_begun = false;
            }
            if let Some(moment) = moment {
                self.edge(node, moment, Kind::RealTime, 0, 0);
            }
        }
    }

    /// The graph.
    pub(super) fn build(self) -> Graph {
        let mut starts = vec![0; self.nodes as usize + 1];
        for edge in &self.edges {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let mut next = starts.clone();
        let mut edges = self.edges.clone();
        for edge in self.edges {
            let at = &mut next[edge.from as usize];
            edges[*at as usize] = edge;
            *at += 1;
        }
        Graph { edges, starts }
    }
}

impl Graph {
    pub(super) fn nodes(&self) -> u32 {
        index(self.starts.len() - 1)
    }

    /// The positions of the edges from a node.
    pub(super) fn from(&self, node: u32) -> std::ops::Range<u32> {
        self.starts[node as usize]..self.starts[node as usize + 1]
    }

    pub(super) fn edge(&self, at: u32) -> Edge {
        self.edges[at as usize]
    }
}

/// Nodes, places and edges have indices of 32 bits, which halves the graph.
///
/// # Panics
///
/// If there are more than 2³²: about a TiB of history.
pub(super) fn index(at: usize) -> u32 {
    u32::try_from(at).expect("a history has fewer than 2^32 accesses")
}
