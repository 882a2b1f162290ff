// A profiler's view of a training step: the ranges of the enqueuing thread.
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/trainer_fixture.hpp"

namespace egt::test {
namespace {

std::vector<std::string> opened;  ///< by path: "train step/forward"
std::vector<std::string> open_ranges;

int push(const char* name) {
  open_ranges.push_back(open_ranges.empty() ? name : open_ranges.back() + "/" + name);
  opened.push_back(open_ranges.back());
  return static_cast<int>(open_ranges.size()) - 1;
}

int pop() {
  open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}

/// Called by NVTX like a profiler's entry point when the first range is opened.
int inject(NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

/// NVTX's weak symbol, which it checks at the first range of the process.
const bool is_injected = (InitializeInjectionNvtx2_fnptr = inject) != nullptr;

TEST_F(Trainer, AProfilerSeesThePhasesOfAStep) {
  ASSERT_TRUE(is_injected);
  auto trainer = make(small_network({Precision::fp32}));
  step(*trainer, 0);
  opened.clear();
  step(*trainer, 1);
  const std::set<std::string> names(opened.begin(), opened.end());
  EXPECT_EQ(names, (std::set<std::string>{"train step", "train step/forward", "train step/forward/update",
                                          "train step/backward", "train step/backward/sum over ranks"}));
  EXPECT_TRUE(open_ranges.empty());
}

}  // namespace
}  // namespace egt::test
#endif
