//! The client of helloworld.

use std::error::Error;

use super::helloworld::{GreeterClient, HelloRequest};

/// Greets a person.
pub async fn greet(server: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let client = GreeterClient::connect(server).await?;
    let request = HelloRequest { name: name.into() };
    let response = client.say_hello(request).await?;
    Ok(response.message)
}
