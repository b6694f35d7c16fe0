//! The client of helloworld.

use std::error::Error;

use tonic::Request;

use super::helloworld::HelloRequest;
use super::helloworld::greeter_client::GreeterClient;

/// Greets a person.
pub async fn greet(server: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let mut client = GreeterClient::connect(format!("http://{server}")).await?;
    let request = Request::new(HelloRequest { name: name.into() });
    let response = client.say_hello(request).await?;
    Ok(response.into_inner().message)
}
