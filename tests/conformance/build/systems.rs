//! The systems whose services are called, and the places of their `.proto` files.

/// One system.
pub struct System {
    /// Name of the system and its test.
    pub name: &'static str,
    /// Folders for imports: a package and a folder in it.
    pub roots: &'static [(&'static str, &'static str)],
    /// The first `own` of the `roots` contain files of the system itself, the others only imports.
    pub own: usize,
    /// Prefixes of paths. Only files with one of these prefixes are compiled.
    pub files: &'static [&'static str],
    /// Prefixes of paths. Files with one of these prefixes are not compiled.
    pub except: &'static [&'static str],
    /// A file of this crate in `proto/`, for systems that define messages without services.
    pub ours: Option<&'static str>,
    /// Whether `bytes` fields are `Bytes` and maps are `BTreeMap`s.
    pub bytes: bool,
    /// Whether `google.protobuf` is generated, too.
    pub well_known: bool,
}

const BASE: System = System {
    name: "",
    roots: &[],
    own: 1,
    files: &[""],
    except: &[],
    ours: None,
    bytes: false,
    well_known: false,
};

/// All systems.
pub const SYSTEMS: &[System] = &[
    System {
        name: "buildkit",
        roots: &[("bollard-buildkit-proto", "resources")],
        except: &["google/protobuf/", "moby/filesync/v1/filesync.packet.proto"],
        ..BASE
    },
    System { name: "cln", roots: &[("cln-grpc", "proto")], ..BASE },
    System {
        name: "containerd",
        roots: &[("containerd-client", "vendor")],
        files: &["github.com/containerd/containerd/api/"],
        well_known: true,
        ..BASE
    },
    System {
        name: "envoy",
        roots: &[
            ("envoy-types", "proto/data-plane-api"),
            ("envoy-types", "proto/xds"),
            ("envoy-types", "proto/protoc-gen-validate"),
            ("envoy-types", "proto/googleapis"),
            ("envoy-types", "proto/cel-spec/proto"),
            ("envoy-types", "proto/opencensus-proto/src"),
            ("envoy-types", "proto/opentelemetry-proto"),
            ("envoy-types", "proto/client_model"),
        ],
        files: &["envoy/service/"],
        ..BASE
    },
    System { name: "etcd", roots: &[("etcd-client", "proto")], bytes: true, ..BASE },
    System {
        name: "google",
        roots: &[("google-cloud-googleapis", "googleapis")],
        files: &[
            "google/assistant/",
            "google/bigtable/v2/",
            "google/bytestream/",
            "google/cloud/speech/v2/",
            "google/datastore/v1/",
            "google/firestore/v1/",
            "google/longrunning/",
            "google/logging/v2/",
            "google/pubsub/v1/",
            "google/spanner/v1/",
            "google/storage/v2/",
            "google/watcher/",
        ],
        ..BASE
    },
    System {
        name: "grpc",
        roots: &[("tonic-reflection", "proto"), ("tonic-health", "proto")],
        own: 2,
        ..BASE
    },
    System {
        name: "hdfs",
        roots: &[("hdfs-native", "src/proto/hdfs"), ("hdfs-native", "src/proto/common")],
        ..BASE
    },
    System { name: "kubernetes", roots: &[("k8s-cri", "proto")], ..BASE },
    System {
        name: "opentelemetry",
        roots: &[("opentelemetry-proto", "src/proto/opentelemetry-proto")],
        ..BASE
    },
    System { name: "pulsar", roots: &[("pulsar", "")], ours: Some("pulsar.proto"), ..BASE },
    System { name: "qdrant", roots: &[("qdrant-client", "proto")], bytes: true, ..BASE },
    System {
        name: "raft",
        roots: &[("raft-proto", "proto"), ("tikv-client", "proto/include")],
        ours: Some("raft.proto"),
        ..BASE
    },
    System {
        name: "skywalking",
        roots: &[("skywalking", "skywalking-data-collect-protocol")],
        ..BASE
    },
    System {
        name: "spiffe",
        roots: &[("spiffe", "src/proto")],
        except: &["google/protobuf/"],
        ..BASE
    },
    System {
        name: "substrait",
        roots: &[("substrait", "substrait/proto")],
        ours: Some("substrait.proto"),
        ..BASE
    },
    System {
        name: "tikv",
        roots: &[("tikv-client", "proto"), ("tikv-client", "proto/include")],
        except: &["include/"],
        ..BASE
    },
    System {
        name: "tokio-console",
        roots: &[("console-api", "proto")],
        except: &["google/"],
        ..BASE
    },
    System { name: "yellowstone", roots: &[("yellowstone-grpc-proto", "proto")], ..BASE },
];
