// The report of a run while it goes on, for `--live`.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "bench/cli/json_file.h"
#include "bench/cli/page_server.h"

namespace hs::bench::report {

// The page of the record that was published last, drawn when a browser asks for it. For one publisher.
class LivePage {
 public:
  // Throws as PageServer().
  LivePage(int port, Json record) : record_(std::move(record)), server_(port, [this] { return page(); }) {}

  const std::string& address() const { return server_.address(); }
  // Whether the page is a second old: more often is not worth a step's time.
  bool is_due() const { return seconds_since(published_) >= 1; }
  void publish(Json record);
  void finish() { server_.finish(); }  // see PageServer

 private:
  std::string page() const;

  mutable std::mutex mutex_;  // guards record_
  Json record_;
  Clock::time_point published_{};
  cli::PageServer server_;  // last: its thread uses the others
};

}  // namespace hs::bench::report
