// What the program knows about its own process: when it started, whether a person watches, and
// Ctrl-C. SIGINT during an answer asks the answer to stop; a second one, or one outside an answer,
// ends the program with 130.
#pragma once

#include <atomic>
#include <string_view>

namespace cuvil::cli {

// Steady-clock seconds.
double Now();

// When this process was started, on the clock of Now(). From /proc, whose ticks are 10 ms: the
// middle of the tick, but never after the first call, which main makes first.
double ProcessStart();

// Opens what of the three standard streams was closed, so that no file of ours gets its number and
// its text with it. Reading or writing them goes on to fail.
void OpenStandardStreams();

// Ignores SIGPIPE and SIGXFSZ (writes report them) and installs the SIGINT handler.
void InstallSignalHandlers();

// While one lives, SIGINT sets *cancel() instead of ending the program. One at a time.
class AnswerScope {
 public:
  AnswerScope();
  ~AnswerScope();
  AnswerScope(const AnswerScope&) = delete;
  AnswerScope& operator=(const AnswerScope&) = delete;
  const std::atomic<bool>* cancel() const;
};

// While one lives, SIGINT only interrupts a blocking read and counts. One at a time.
class IdleScope {
 public:
  IdleScope();
  ~IdleScope();
  IdleScope(const IdleScope&) = delete;
  IdleScope& operator=(const IdleScope&) = delete;
  int interrupts() const;  // since the scope began
};

// A line on stderr that says what is going on and is replaced by the next; nothing when stderr is
// no terminal, unless `always`, which prints plain lines. Cleared when destroyed.
class Progress {
 public:
  explicit Progress(bool always);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Say(std::string_view what);
  void Clear();

 private:
  bool terminal_, always_, shown_ = false;
};

}  // namespace cuvil::cli
