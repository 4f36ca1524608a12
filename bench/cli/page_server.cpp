#include "bench/cli/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "engine/check.h"

namespace hs::bench::cli {
namespace {

using namespace std::chrono_literals;

constexpr size_t most_bytes = 4096;  // of a request
constexpr auto patience = 500ms;     // with a connection
constexpr auto watching = 2500ms;    // from one request of a browser to its next

}  // namespace

PageServer::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

PageServer::PageServer(int port, Json record, std::function<std::string(const Json&)> draw)
    : draw_(std::move(draw)), record_(std::move(record)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  auto* const named = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  const int on = 1;  // a port that a program has just left can be had at once
  std::array<uint64_t, 2> token{};
  listener_.number = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  wake_.number = ::eventfd(0, EFD_CLOEXEC);
  if (listener_.number < 0 || wake_.number < 0 || ::getrandom(token.data(), sizeof token, 0) != sizeof token ||
      ::setsockopt(listener_.number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener_.number, named, size) != 0 || ::listen(listener_.number, 16) != 0 ||
      ::getsockname(listener_.number, named, &size) != 0) {
    fail(ExitCode::io, "--live {}: {}; give another port, or none for a free one", port, std::strerror(errno));
  }
  request_ = fmt::format("GET /{:016x}{:016x}/ HTTP/1.", token[0], token[1]);
  address_ = fmt::format("http://127.0.0.1:{}/{:016x}{:016x}/", ntohs(address.sin_port), token[0], token[1]);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    fail(ExitCode::out_of_memory, "--live: its thread cannot be started: {}", error.what());
  }
}

void PageServer::publish(Json record) {
  published_ = Clock::now();
  const std::scoped_lock lock(mutex_);
  record_.swap(record);
}

void PageServer::finish() {
  lingers_ = true;
  stop();
}

void PageServer::stop() {
  if (!thread_.joinable()) return;
  ends_ = true;
  static_cast<void>(::eventfd_write(wake_.number, 1));
  thread_.join();
}

void PageServer::run() {
  while (!ends_ || (lingers_ && Clock::now() < watched_until_)) {
    const bool ends = ends_;
    std::array<pollfd, 2> ready = {{{listener_.number, POLLIN, 0}, {ends ? -1 : wake_.number, POLLIN, 0}}};
    ::poll(ready.data(), ready.size(), ends ? 100 : -1);
    if (ready[0].revents == 0) continue;
    const Descriptor browser{::accept4(listener_.number, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (browser.number < 0) {
      ::poll(nullptr, 0, 100);  // too many open files, say: until some are closed
      continue;
    }
    try {
      serve(browser.number);
    } catch (const std::exception&) {  // no memory for the page: training needs it more
    }
  }
}

void PageServer::serve(int socket) {
  const Clock::time_point end = Clock::now() + patience;
  const auto is_ready = [&](int16_t what) {
    pollfd one = {socket, what, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    return left > 0 && ::poll(&one, 1, static_cast<int>(left)) == 1;
  };
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    std::array<char, 1024> bytes{};
    const ssize_t count = is_ready(POLLIN) ? ::recv(socket, bytes.data(), bytes.size(), 0) : 0;
    if (count <= 0 || request.size() > most_bytes) return;
    request.append(bytes.data(), static_cast<size_t>(count));
  }
  const std::string answer = answer_to(request);
  for (std::string_view left = answer; !left.empty();) {
    const ssize_t count = is_ready(POLLOUT) ? ::send(socket, left.data(), left.size(), MSG_NOSIGNAL) : 0;
    if (count <= 0) return;
    left.remove_prefix(static_cast<size_t>(count));
  }
}

std::string PageServer::answer_to(const std::string& request) {
  if (!request.starts_with(request_)) {
    return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  }
  const bool is_last = ends_;
  if (!is_last) watched_until_ = Clock::now() + watching;
  std::unique_lock lock(mutex_);
  const Json record = record_;
  lock.unlock();
  const std::string html = draw_(record);
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n{}\r\n{}",
      html.size(), is_last ? "" : "Refresh: 2\r\n", html);
}

}  // namespace hs::bench::cli
