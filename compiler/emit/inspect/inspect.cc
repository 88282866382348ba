#include "compiler/emit/inspect/inspect.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/module_export.h"
#include "base/status.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrAnalysis.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"

namespace cuvil::emit {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";
constexpr uint64_t kCodeBytesMax = 64 << 20;  // a kernel of this size is a mistake

absl::Status Bad(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("object code: ", why));
}

std::string Text(llvm::Error error) { return llvm::toString(std::move(error)); }

// The bytes of a function in a relocatable object.
absl::StatusOr<llvm::ArrayRef<uint8_t>> FindFunction(const llvm::object::ObjectFile& object,
                                                     std::string_view symbol) {
  for (const llvm::object::SymbolRef& s : object.symbols()) {
    llvm::Expected<llvm::StringRef> name = s.getName();
    if (!name) return Bad(Text(name.takeError()));
    if (std::string_view(name->data(), name->size()) != symbol) continue;
    llvm::Expected<llvm::object::SymbolRef::Type> type = s.getType();
    if (!type) return Bad(Text(type.takeError()));
    if (*type != llvm::object::SymbolRef::ST_Function) continue;
    llvm::Expected<llvm::object::section_iterator> section = s.getSection();
    if (!section) return Bad(Text(section.takeError()));
    if (*section == object.section_end()) continue;  // undefined here
    llvm::Expected<llvm::StringRef> contents = (*section)->getContents();
    if (!contents) return Bad(Text(contents.takeError()));
    llvm::Expected<uint64_t> begin = s.getValue();
    if (!begin) return Bad(Text(begin.takeError()));
    const uint64_t size = llvm::object::ELFSymbolRef(s).getSize();
    if (*begin > contents->size() || size > contents->size() - *begin || size > kCodeBytesMax) {
      return Bad(absl::StrCat("function '", Sv(symbol), "' is outside its section"));
    }
    return llvm::ArrayRef<uint8_t>(contents->bytes_begin() + *begin, size);
  }
  return Bad(absl::StrCat("no function '", Sv(symbol), "'"));
}

struct Decoded {
  uint64_t at = 0, size = 0;
  std::string mnemonic;
  bool call = false, broadcast = false;
  StackTraffic stack;
  int64_t backward_to = -1;  // target of a backward branch
};

// The LLVM objects a disassembly needs, made for one Inspect call.
class Disassembler {
 public:
  static absl::StatusOr<std::unique_ptr<Disassembler>> Make() {
    static std::once_flag once;
    std::call_once(once, [] {
      LLVMInitializeX86TargetInfo();
      LLVMInitializeX86TargetMC();
      LLVMInitializeX86Disassembler();
    });
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, error);
    if (target == nullptr) return absl::InternalError(error);
    auto d = std::make_unique<Disassembler>();
    d->registers_.reset(target->createMCRegInfo(kTriple));
    d->assembly_.reset(target->createMCAsmInfo(*d->registers_, kTriple, llvm::MCTargetOptions()));
    d->subtarget_.reset(target->createMCSubtargetInfo(kTriple, "", ""));
    d->info_.reset(target->createMCInstrInfo());
    d->context_ = std::make_unique<llvm::MCContext>(llvm::Triple(kTriple), d->assembly_.get(),
                                                    d->registers_.get(), d->subtarget_.get());
    d->decoder_.reset(target->createMCDisassembler(*d->subtarget_, *d->context_));
    constexpr unsigned kIntel = 1;
    d->printer_.reset(target->createMCInstPrinter(llvm::Triple(kTriple), kIntel, *d->assembly_,
                                                  *d->info_, *d->registers_));
    d->analysis_.reset(target->createMCInstrAnalysis(d->info_.get()));
    if (!d->decoder_ || !d->printer_ || !d->analysis_) {
      return absl::InternalError("this LLVM has no x86-64 disassembler");
    }
    return d;
  }

  absl::StatusOr<std::vector<Decoded>> Run(llvm::ArrayRef<uint8_t> code, std::string* listing) {
    std::vector<llvm::MCInst> insts;
    std::vector<Decoded> out;
    for (uint64_t at = 0; at < code.size();) {
      llvm::MCInst inst;
      uint64_t size = 0;
      const auto status = decoder_->getInstruction(inst, size, code.slice(at), at, llvm::nulls());
      if (status != llvm::MCDisassembler::Success || size == 0) {
        return Bad(absl::StrCat("no instruction at byte ", at, " of the function"));
      }
      Decoded d{.at = at, .size = size};
      Describe(inst, &d, listing);
      insts.push_back(inst);
      out.push_back(std::move(d));
      at += size;
    }
    // rbp is an ordinary register unless the prologue makes it the frame pointer.
    bool frame_pointer = false;
    for (const llvm::MCInst& inst : insts) frame_pointer = frame_pointer || SetsFramePointer(inst);
    for (size_t i = 0; i < insts.size(); ++i) out[i].stack = Stack(insts[i], frame_pointer);
    return out;
  }

 private:
  void Describe(const llvm::MCInst& inst, Decoded* d, std::string* listing) {
    const llvm::MCInstrDesc& desc = info_->get(inst.getOpcode());
    std::string text;
    llvm::raw_string_ostream stream(text);
    printer_->printInst(&inst, d->at, "", *subtarget_, stream);
    d->broadcast = text.find("{1to") != std::string::npos;
    const size_t begin = text.find_first_not_of(" \t");
    text = begin == std::string::npos ? "" : text.substr(begin);
    std::replace(text.begin(), text.end(), '\t', ' ');
    d->mnemonic = text.substr(0, text.find(' '));
    absl::StrAppend(listing, absl::StrFormat("%6x  ", d->at), text, "\n");
    d->call = desc.isCall();
    uint64_t to = 0;
    if (desc.isBranch() && analysis_->evaluateBranch(inst, d->at, d->size, to) && to <= d->at) {
      d->backward_to = static_cast<int64_t>(to);
    }
  }

  std::string_view RegisterName(const llvm::MCInst& inst, unsigned operand) const {
    if (operand >= inst.getNumOperands() || !inst.getOperand(operand).isReg()) return "";
    return registers_->getName(inst.getOperand(operand).getReg());
  }

  bool SetsFramePointer(const llvm::MCInst& inst) const {
    return RegisterName(inst, 0) == "RBP" && RegisterName(inst, 1) == "RSP";  // mov or lea
  }

  StackTraffic Stack(const llvm::MCInst& inst, bool frame_pointer) const {
    StackTraffic s;
    const llvm::MCInstrDesc& desc = info_->get(inst.getOpcode());
    bool on_stack = false, vector = false;
    for (unsigned i = 0; i < inst.getNumOperands(); ++i) {
      const std::string_view name = RegisterName(inst, i);
      vector =
          vector || name.starts_with("XMM") || name.starts_with("YMM") || name.starts_with("ZMM");
      // An x86 memory operand is five operands; the base comes first.
      const bool memory =
          i < desc.getNumOperands() &&
          desc.operands()[i].OperandType == llvm::MCOI::OPERAND_MEMORY &&
          (i == 0 || desc.operands()[i - 1].OperandType != llvm::MCOI::OPERAND_MEMORY);
      on_stack = on_stack || (memory && (name == "RSP" || (frame_pointer && name == "RBP")));
    }
    if (!on_stack) return s;
    (vector ? s.vector_loads : s.loads) += desc.mayLoad();
    (vector ? s.vector_stores : s.stores) += desc.mayStore();
    return s;
  }

  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> assembly_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCInstrInfo> info_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> decoder_;
  std::unique_ptr<llvm::MCInstPrinter> printer_;
  std::unique_ptr<llvm::MCInstrAnalysis> analysis_;
};

void AddTo(StackTraffic* sum, const StackTraffic& s) {
  sum->loads += s.loads;
  sum->stores += s.stores;
  sum->vector_loads += s.vector_loads;
  sum->vector_stores += s.vector_stores;
}

// Ranges of backward branches, the last branch to each target counting; only those around no other.
std::vector<LoopReport> InnermostLoops(const std::vector<Decoded>& code) {
  std::map<uint64_t, uint64_t> ranges;
  for (const Decoded& d : code) {
    if (d.backward_to >= 0) ranges[d.backward_to] = d.at + d.size;
  }
  std::vector<LoopReport> loops;
  uint64_t nearest_end = ~uint64_t{0};  // the smallest end of a loop that begins later
  for (auto it = ranges.rbegin(); it != ranges.rend(); ++it) {
    if (nearest_end > it->second) loops.push_back({.begin = it->first, .end = it->second});
    nearest_end = std::min(nearest_end, it->second);
  }
  std::reverse(loops.begin(), loops.end());
  for (LoopReport& loop : loops) {
    const auto first = std::lower_bound(code.begin(), code.end(), loop.begin,
                                        [](const Decoded& d, uint64_t at) { return d.at < at; });
    for (auto d = first; d != code.end() && d->at < loop.end; ++d) {
      ++loop.instructions;
      ++loop.mnemonics[d->mnemonic];
      loop.calls += d->call;
      loop.broadcasts += d->broadcast;
      AddTo(&loop.stack, d->stack);
    }
  }
  return loops;
}

absl::StatusOr<ObjectReport> InspectObject(absl::Span<const uint8_t> elf_object,
                                           std::string_view symbol) {
  const llvm::StringRef bytes(reinterpret_cast<const char*>(elf_object.data()), elf_object.size());
  auto object =
      llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(bytes, "object"));
  if (!object) return Bad(Text(object.takeError()));
  if ((*object)->getArch() != llvm::Triple::x86_64) return Bad("not for x86-64");
  ASSIGN_OR_RETURN(const llvm::ArrayRef<uint8_t> code, FindFunction(**object, symbol));
  ASSIGN_OR_RETURN(const std::unique_ptr<Disassembler> disassembler, Disassembler::Make());
  ObjectReport report{.symbol = std::string(symbol), .code_bytes = code.size()};
  ASSIGN_OR_RETURN(const std::vector<Decoded> decoded, disassembler->Run(code, &report.listing));
  report.instructions = static_cast<int>(decoded.size());
  for (const Decoded& d : decoded) {
    report.calls += d.call;
    AddTo(&report.stack, d.stack);
  }
  report.loops = InnermostLoops(decoded);
  return report;
}

}  // namespace

CUVIL_MODULE_EXPORT const Inspector cuvil_inspector{&InspectObject};

}  // namespace cuvil::emit
