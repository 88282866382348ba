#include "cli/process.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/exit_code.h"

namespace cuvil::cli {
namespace {

enum Mode { kElsewhere, kAnswer, kIdle };

std::atomic<int> g_mode{kElsewhere};
std::atomic<bool> g_cancel{false};
std::atomic<int> g_interrupts{0};

void OnInterrupt(int) {
  const int mode = g_mode.load();
  if (mode == kAnswer && !g_cancel.exchange(true)) return;
  if (mode == kIdle) {
    g_interrupts.fetch_add(1);
    return;
  }
  _exit(kInterrupted);
}

double Clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Seconds since this process was started according to /proc; negative when it does not say.
double Age() {
  std::FILE* file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return -1;
  char text[1024];
  const size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[size] = 0;
  // The second field is the program's name in parentheses and may hold anything.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr) return -1;
  constexpr int kStartTimeAfterName = 20;  // field 22 of proc(5)
  for (int field = 0; field < kStartTimeAfterName && at != nullptr; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  if (at == nullptr) return -1;
  const double ticks_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double start = (std::strtod(at, nullptr) + 0.5) / ticks_s;
  return Clock(CLOCK_BOOTTIME) - start;
}

}  // namespace

double Now() { return Clock(CLOCK_MONOTONIC); }

double ProcessStart() {
  static const double start = Now() - std::clamp(Age(), 0.0, 60.0);
  return start;
}

void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is taken, which is `fd`. Open the wrong way round, it says EBADF
    // still.
    const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) close(opened);
  }
}

void InstallSignalHandlers() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: Ctrl-C at a prompt must end the read.
  struct sigaction before;
  // A program started with SIGINT ignored (in the background of a script) keeps it so.
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  sigaction(SIGINT, &action, nullptr);
}

AnswerScope::AnswerScope() {
  g_cancel.store(false);
  g_mode.store(kAnswer);
}
AnswerScope::~AnswerScope() { g_mode.store(kElsewhere); }
const std::atomic<bool>* AnswerScope::cancel() const { return &g_cancel; }

IdleScope::IdleScope() {
  g_interrupts.store(0);
  g_mode.store(kIdle);
}
IdleScope::~IdleScope() { g_mode.store(kElsewhere); }
int IdleScope::interrupts() const { return g_interrupts.load(); }

Progress::Progress(bool always) : terminal_(isatty(STDERR_FILENO) != 0), always_(always) {}

Progress::~Progress() { Clear(); }

void Progress::Say(std::string_view what) {
  if (terminal_) {
    const std::string line = "\r\033[K" + OneLine(what) + "\xE2\x80\xA6";
    std::fwrite(line.data(), 1, line.size(), stderr);
    shown_ = true;
  } else if (always_) {
    const std::string line = OneLine(what) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

void Progress::Clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace cuvil::cli
