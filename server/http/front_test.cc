#include "server/http/front.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "gtest/gtest.h"
#include "server/openai/fake_backend.h"

namespace cuvil::server::http {
namespace {

// Tells on which thread it dies.
class Mortal {
 public:
  Mortal(std::thread::id home, std::atomic<int>* strayed) : home_(home), strayed_(strayed) {}
  ~Mortal() {
    if (std::this_thread::get_id() != home_) strayed_->fetch_add(1);
  }

 private:
  const std::thread::id home_;
  std::atomic<int>* const strayed_;
};

// A result that leaves the pool's thread slowly: the I/O thread is done with the job before.
struct Slow {
  explicit Slow(std::thread::id home) : home(home) {}
  Slow(Slow&& other) noexcept : home(other.home) { other.moved = true; }
  ~Slow() {
    if (moved && std::this_thread::get_id() != home)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::thread::id home;
  bool moved = false;
};

// A connection that lost its last owner on the pool's thread took itself out of the set of all
// connections there, while the I/O thread read it.
TEST(FrontTest, WhatThenHoldsDiesOnTheIoThread) {
  FakeBackend backend;
  Front front({}, {}, &backend);
  auto guard = boost::asio::make_work_guard(front.io());
  std::thread io([&front] { front.io().run(); });
  std::atomic<int> strayed{0};
  std::promise<void> ran;
  boost::asio::post(front.io(), [&] {
    const auto home = std::this_thread::get_id();
    // Captured as const, as a reference to const is.
    const auto mortal = std::make_shared<Mortal>(home, &strayed);
    front.OnPool([home] { return Slow(home); }, [mortal, &ran](Slow) { ran.set_value(); });
  });
  ran.get_future().wait();
  guard.reset();
  io.join();
  front.Stop();
  EXPECT_EQ(strayed.load(), 0);
}

}  // namespace
}  // namespace cuvil::server::http
