//! Generates a server that implements every trait, and a driver that calls every client function.

use std::fmt::Write;

use erpc_build::Mode;
use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use prost_reflect::{MethodDescriptor, ServiceDescriptor};

use crate::modes::mode;
use crate::names::{self, Names, full_name};

/// Functions that every client has, besides those for the methods of the `.proto` file.
const CLIENT_RESERVED: [&str; 4] = ["new", "connect", "channel", "with"];

/// The code for `services`, which are all services in `files`.
pub fn harness(services: &[ServiceDescriptor], files: &[String], names: Names) -> String {
    let mut out = format!("pub const FILES: [&str; {}] = {files:#?};\n\n", files.len());
    for (at, service) in services.iter().enumerate() {
        out += &implementation(at, service, names);
        out += &driver(at, service);
    }
    out + &registration(services.len())
}

/// The path of the generated module of a service.
fn module(service: &ServiceDescriptor) -> String {
    let name = service.name().to_upper_camel_case().to_snake_case();
    format!("{}{name}_service", names::package(service.package_name()))
}

fn implementation(at: usize, service: &ServiceDescriptor, names: Names) -> String {
    let path = format!("{}::{}", module(service), names::camel(service.name()));
    let mut out = format!(
        "#[derive(::erpc::Service)]
#[erpc(service = {path})]
struct Service{at}(::std::sync::Arc<::erpc_conformance::Answers>);

impl {path} for Service{at} {{
"
    );
    for method in service.methods() {
        let function = handler(&method, names);
        writeln!(out, "    {function}").expect("writing to a string cannot fail");
    }
    out + "}\n\n"
}

fn handler(method: &MethodDescriptor, names: Names) -> String {
    let name = names::snake(method.name());
    let (request, response) = (names.message(&method.input()), names.message(&method.output()));
    let request = match method.is_client_streaming() {
        true => format!("::erpc::Request<'_, ::erpc::Incoming<{request}>>"),
        false => format!("::erpc::Request<'_, {request}>"),
    };
    let (out, pass, output) = match method.is_server_streaming() {
        true => (format!(", out: ::erpc::Outgoing<{response}>"), ", out", "()".to_owned()),
        false => (String::new(), "", format!("::erpc::Response<{response}>")),
    };
    let (word, end) = match mode(method) {
        Some(Mode::Dispatch | Mode::Worker) => ("", ""),
        Some(Mode::Async | Mode::Tokio) | None => ("async ", ".await"),
    };
    // `Answers::unary` is not an `async fn`, even if the handler is one.
    let end = if shape(method) == "unary" { "" } else { end };
    format!(
        "{word}fn {name}(&self, request: {request}{out}) -> Result<{output}, ::erpc::Status> {{ \
         self.0.{}({:?}, request{pass}){end} }}",
        shape(method),
        full_name(method),
    )
}

fn shape(method: &MethodDescriptor) -> &'static str {
    match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => "unary",
        (false, true) => "server_streaming",
        (true, false) => "client_streaming",
        (true, true) => "bidi_streaming",
    }
}

fn driver(at: usize, service: &ServiceDescriptor) -> String {
    let module = module(service);
    let client = format!("{module}::Local{}Client", service.name().to_upper_camel_case());
    let mut out = format!(
        "fn drive{at}(calls: &mut ::erpc_conformance::Calls) {{
    let client = {client}::new(calls.session());
    let _ = &client;
"
    );
    for method in service.methods() {
        let name = call_name(&method);
        let plain = name.trim_start_matches("r#");
        let calls = match shape(&method) {
            "unary" => format!(
                "|c, request| c.{name}(request), |c, request, done| c.{plain}_with(request, done)"
            ),
            "server_streaming" => format!("|c, request| c.{name}(request)"),
            _ => format!("|c| c.{name}()"),
        };
        let constant = format!("{module}::methods::{}", method.name().to_shouty_snake_case());
        let (shape, full_name) = (shape(&method), full_name(&method));
        writeln!(out, "    calls.{shape}(&client, {full_name:?}, {constant}, {calls});")
            .expect("writing to a string cannot fail");
    }
    out + "}\n\n"
}

fn registration(services: usize) -> String {
    let added: String =
        (0..services).map(|at| format!(".add_service(Service{at}(answers.clone()))")).collect();
    let driven: String = (0..services).map(|at| format!("    drive{at}(calls);\n")).collect();
    format!(
        "pub fn serve(
    builder: ::erpc::ServerBuilder,
    answers: &::std::sync::Arc<::erpc_conformance::Answers>,
) -> ::erpc::ServerBuilder {{
    builder{added}
}}

pub fn drive(calls: &mut ::erpc_conformance::Calls) {{
{driven}}}
"
    )
}

/// The name of the generated client's function for a method. An underscore is added if the name is
/// one of [`CLIENT_RESERVED`], the functions that every client has.
fn call_name(method: &MethodDescriptor) -> String {
    let name = names::snake(method.name());
    if CLIENT_RESERVED.contains(&&name[..]) { name + "_" } else { name }
}
