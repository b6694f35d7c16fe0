//! A generated service with handlers in tokio, in the event loop and of plain `fn`s.

use std::future::pending;
use std::time::Duration;

use erpc::{
    CallError, Code, Incoming, Outgoing, Request, Response, Server, SharedIncoming, SharedOutgoing,
    SharedRequest, Status,
};
use erpc_codegen_tests::library::{Book, Library, LibraryClient, Shelf};

#[derive(erpc::Service)]
#[erpc(service = erpc_codegen_tests::library::Library, worker(Peek))]
#[erpc(method(Find, deadline = "50ms"))]
struct Reading;

fn book(title: impl Into<String>) -> Book {
    Book { title: title.into() }
}

impl Library for Reading {
    async fn find(&self, request: SharedRequest<Shelf>) -> Result<Response<Book>, Status> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        match request.into_message().number {
            0 => pending().await,
            number => Ok(Response::new(book(format!("book {number}")))),
        }
    }

    fn peek(&self, request: Request<'_, Shelf>) -> Result<Response<Book>, Status> {
        Ok(Response::new(book(format!("cover {}", request.message().number))))
    }

    async fn wait(&self, request: Request<'_, Shelf>) -> Result<Response<Book>, Status> {
        erpc::sleep(Duration::from_millis(1)).await;
        Ok(Response::new(book(format!("late {}", request.message().number))))
    }

    async fn list(
        &self,
        request: SharedRequest<Shelf>,
        out: SharedOutgoing<Book>,
    ) -> Result<(), Status> {
        for number in 0..request.into_message().number {
            tokio::task::yield_now().await;
            out.send(book(number.to_string())).await?;
        }
        Ok(())
    }

    async fn r#return(
        &self,
        request: SharedRequest<SharedIncoming<Book>>,
    ) -> Result<Response<Shelf>, Status> {
        let (mut books, mut number) = (request.into_message(), 0);
        while books.next().await?.is_some() {
            number += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(Response::new(Shelf { number }))
    }

    async fn swap(
        &self,
        request: SharedRequest<SharedIncoming<Book>>,
        out: SharedOutgoing<Book>,
    ) -> Result<(), Status> {
        let mut books = request.into_message();
        while let Some(given) = books.next().await? {
            out.send(book(format!("not {}", given.title))).await?;
        }
        Ok(())
    }

    async fn offer(
        &self,
        request: Request<'_, Incoming<Book>>,
        out: Outgoing<Book>,
    ) -> Result<(), Status> {
        let mut books = request.into_message();
        while let Some(book) = books.next().await? {
            out.send(&book).await?;
        }
        Ok(())
    }
}

#[test]
fn handlers_of_all_modes_serve_one_client() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let handle = runtime.handle().clone();
    let server = Server::builder().add_service(Reading).tokio(handle).spawn("127.0.0.1:0");
    let server = server.expect("a free port");
    let calls = async {
        let library = LibraryClient::connect(server.local_addr()).await.expect("it listens");
        let shelf = |number| Shelf { number };
        assert_eq!(library.find(shelf(7)).await?.title, "book 7");
        assert_eq!(library.peek(shelf(7)).await?.title, "cover 7");
        assert_eq!(library.wait(shelf(7)).await?.title, "late 7");
        let endless = library.find(shelf(0)).await.map_err(|error| error.code());
        assert_eq!(endless, Err(Code::DeadlineExceeded));
        let (mut list, mut count) = (library.list(shelf(3)), 0);
        while let Some(book) = list.next().await? {
            assert_eq!(book.title, count.to_string());
            count += 1;
        }
        assert_eq!(count, 3);
        let returned = library.r#return();
        for title in ["a", "b"] {
            returned.send(book(title)).await?;
        }
        assert_eq!(returned.finish().await?.number, 2);
        for ((out, mut books), answer) in [(library.swap(), "not a"), (library.offer(), "a")] {
            out.send(book("a")).await?;
            assert_eq!(books.next().await?, Some(book(answer)));
            drop(out);
            assert_eq!(books.next().await?, None);
        }
        Ok::<(), CallError>(())
    };
    let limited = async { tokio::time::timeout(Duration::from_secs(20), calls).await };
    runtime.block_on(limited).expect("it ends in time").expect("every call succeeds");
}
