//! Binds the system's DPDK: `pkg-config libdpdk`, bindgen for functions, a C shim for functions
//! that DPDK's headers define inline.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-changed=src/shim.h");
    // EAL loads drivers from its plug-in folder, so none is linked but net_ring, whose function
    // makes ports of rings.
    let dpdk = pkg_config::Config::new().atleast_version("22.11").probe("libdpdk");
    let dpdk = dpdk.unwrap_or_else(|error| {
        panic!("DPDK 22.11 or later is needed; on Debian, run dpdk-sys/install. {error}")
    });
    let includes = dpdk.include_paths.iter().map(|path| format!("-I{}", path.display()));
    let mut flags: Vec<String> = includes.collect();
    // The headers use instructions that plain x86-64 lacks. Debian's DPDK is built for them.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        flags.push("-msse4.2".to_owned());
    }

    let mut shim = cc::Build::new();
    shim.file("src/shim.c").opt_level(3).warnings(false);
    for flag in &flags {
        shim.flag(flag);
    }
    shim.compile("erpc_dpdk_shim");
    println!("cargo:rustc-link-lib=rte_net_ring");

    let bindings = bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(&flags)
        .allowlist_function("erpc_.*")
        .allowlist_function("rte_eal_init")
        .allowlist_function("rte_strerror")
        .allowlist_function("rte_thread_(un)?register")
        .allowlist_function("rte_pktmbuf_pool_create")
        .allowlist_function("rte_mempool_free")
        .allowlist_type("erpc_.*")
        .allowlist_var("ERPC_.*")
        .opaque_type("rte_mbuf")
        .opaque_type("rte_mempool")
        .layout_tests(false)
        .derive_default(true)
        .generate()
        .expect("bindgen reads DPDK's headers; is libclang-dev installed?");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("OUT_DIR is writable");
}
