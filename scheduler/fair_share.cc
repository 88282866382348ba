#include "scheduler/fair_share.h"

#include <algorithm>

#include "base/status.h"

namespace cuvil::scheduler {
namespace {

// Absent tenants whose debt is remembered. A cap, because names come from outside; the smallest
// debts go first.
constexpr int64_t kAbsentMax = 4096;

}  // namespace

void FairShare::Enter(const std::string& tenant, double weight) {
  Advance();
  Tenant& t = tenants_[tenant];
  if (t.sequences == 0) t.tag = std::max(t.tag, now_);
  t.weight = weight;
  ++t.sequences;
}

void FairShare::Leave(const std::string& tenant) {
  const auto it = tenants_.find(tenant);
  CUVIL_CHECK(it != tenants_.end() && it->second.sequences > 0, "a tenant left before it came");
  --it->second.sequences;
  Advance();
}

void FairShare::Charge(const std::string& tenant, int64_t tokens) {
  Tenant& t = tenants_.at(tenant);
  t.tag += static_cast<double>(tokens) / t.weight;
}

double FairShare::tag(const std::string& tenant) const { return tenants_.at(tenant).tag; }

double FairShare::weight(const std::string& tenant) const { return tenants_.at(tenant).weight; }

void FairShare::Advance() {
  bool present = false;
  double least = 0, most = now_;
  int64_t absent = 0;
  for (const auto& [name, t] : tenants_) {
    most = std::max(most, t.tag);
    absent += t.sequences == 0;
    if (t.sequences == 0) continue;
    least = present ? std::min(least, t.tag) : t.tag;
    present = true;
  }
  // With nobody there every debt is paid: no one waited for it.
  now_ = std::max(now_, present ? least : most);
  std::erase_if(tenants_, [&](const auto& entry) {
    return entry.second.sequences == 0 && entry.second.tag <= now_;
  });
  if (absent <= kAbsentMax) return;
  auto least_debt = tenants_.end();
  for (auto it = tenants_.begin(); it != tenants_.end(); ++it) {
    if (it->second.sequences > 0) continue;
    if (least_debt == tenants_.end() || it->second.tag < least_debt->second.tag) least_debt = it;
  }
  if (least_debt != tenants_.end()) tenants_.erase(least_debt);
}

}  // namespace cuvil::scheduler
