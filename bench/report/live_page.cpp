#include "bench/report/live_page.h"

#include "bench/report/page.h"

namespace hs::bench::report {

void LivePage::publish(Json record) {
  published_ = Clock::now();
  const std::scoped_lock lock(mutex_);
  record_.swap(record);
}

std::string LivePage::page() const {
  Json record;
  {
    const std::scoped_lock lock(mutex_);
    record = record_;
  }
  return html_report(Json::parse(to_text(record)));  // as a record that was written: without NaN
}

}  // namespace hs::bench::report
