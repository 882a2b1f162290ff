#include "device/cuda/cuda_graph.hpp"

#include <type_traits>

#include "device/cuda/cuda_native.hpp"

namespace egt {
namespace {

struct GraphDestroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
struct GraphExecDestroy {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};

struct CapturedGraph final : CapturedWork {
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, GraphExecDestroy> exec;
};

}  // namespace

Result<std::unique_ptr<CapturedWork>> capture_graph(CudaStream& stream,
                                                    const std::function<Status()>& enqueue) {
  EGT_TRY(stream.first_error());
  // Thread-local mode, because a global capture would reject unrelated calls of other threads.
  EGT_TRY(cuda_status(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal),
                      "begin a capture"));
  const Status enqueued = enqueue();
  cudaGraph_t captured = nullptr;
  const Status ended = cuda_status(cudaStreamEndCapture(stream.native(), &captured), "end a capture");
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDestroy> graph(captured);
  // The failed work was only captured, so the stream itself has no error.
  if (!enqueued.ok() || !ended.ok()) stream.forget_failure();
  EGT_TRY(enqueued);
  EGT_TRY(ended);
  cudaGraphExec_t exec = nullptr;
  EGT_TRY(cuda_status(cudaGraphInstantiate(&exec, graph.get(), 0), "make a graph"));
  auto work = std::make_unique<CapturedGraph>();
  work->exec.reset(exec);
  return std::unique_ptr<CapturedWork>(std::move(work));
}

cudaError_t launch_graph(CapturedWork& work, CudaStream& stream) {
  return cudaGraphLaunch(static_cast<CapturedGraph&>(work).exec.get(), stream.native());
}

}  // namespace egt
