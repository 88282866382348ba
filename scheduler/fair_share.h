// FairShare: start-time fair queueing between tenants, on tokens served. A tenant's tag grows by
// tokens / weight; the smallest tag goes first. A tenant that was away starts at the virtual time,
// so idling saves nothing up; its debt is kept until the virtual time has passed it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cuvil::scheduler {

class FairShare {
 public:
  // A sequence of this tenant arrives or ends.
  void Enter(const std::string& tenant, double weight);
  void Leave(const std::string& tenant);
  void Charge(const std::string& tenant, int64_t tokens);
  // REQUIRES: the tenant has entered.
  double tag(const std::string& tenant) const;
  double weight(const std::string& tenant) const;
  int64_t tenants() const { return static_cast<int64_t>(tenants_.size()); }

 private:
  struct Tenant {
    double tag = 0, weight = 1;
    int64_t sequences = 0;
  };
  void Advance();

  std::map<std::string, Tenant> tenants_;
  double now_ = 0;  // virtual time: the smallest tag of those present, never going back
};

}  // namespace cuvil::scheduler
