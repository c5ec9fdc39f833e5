/* graph.cpp - CUDA graphs of the emulated device; see runtime.h. */
#include "cuda_runtime.h"

#include <memory>
#include <new>
#include <vector>

#include "inside.h"

typedef std::vector<fl_emu_work> work_list;

struct fl_emu_graph {
    std::shared_ptr<work_list> work;
};
/* One under way has its work for itself, and may be destroyed. */
struct fl_emu_graph_exec {
    std::shared_ptr<work_list> work;
    void *memory; /* of the device, as a real one takes some */
};

static thread_local struct {
    cudaStream_t stream; /* NULL: nothing is captured */
    std::shared_ptr<work_list> work;
    bool invalid;
} now;

bool fl_emu_captures()
{
    return now.stream != nullptr;
}

bool fl_emu_captures(cudaStream_t s)
{
    return s && now.stream == s;
}

cudaError_t fl_emu_spoil(const char *call)
{
    now.invalid = true;
    return fl_emu_error(cudaErrorStreamCaptureUnsupported,
                        "%s is not permitted while a stream is captured", call);
}

bool fl_emu_captured(cudaStream_t s, const fl_emu_work &work)
{
    if (!fl_emu_captures(s))
        return false;
    now.work->push_back(work);
    return true;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    if (!s || now.stream || mode != cudaStreamCaptureModeThreadLocal)
        return fl_emu_error(cudaErrorStreamCaptureUnsupported,
                            "a capture of the default stream, a second one, "
                            "or in another mode than the thread's");
    now.stream = s;
    now.work = std::make_shared<work_list>();
    now.invalid = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    *graph = nullptr;
    if (!fl_emu_captures(s))
        return fl_emu_error(cudaErrorStreamCaptureUnmatched,
                            "the stream is not captured");
    now.stream = nullptr;
    if (now.invalid) {
        now.work.reset();
        return fl_emu_error(cudaErrorStreamCaptureInvalidated,
                            "the capture was made invalid before");
    }
    *graph = new (std::nothrow) fl_emu_graph{std::move(now.work)};
    return *graph ? cudaSuccess
                  : fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long)
{
    void *memory;
    cudaError_t e = cudaMalloc(&memory, graph->work->size());

    *exec = nullptr;
    if (e != cudaSuccess)
        return e;
    *exec = new (std::nothrow) fl_emu_graph_exec{graph->work, memory};
    fl_emu_keep(*exec);
    if (*exec)
        return cudaSuccess;
    cudaFree(memory);
    return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

/* Pinned memory is what it is at the launch. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    std::vector<std::function<void()>> all;

    for (const fl_emu_work &one : *exec->work)
        all.push_back(fl_emu_pinned_work(one));
    __atomic_fetch_add(&fl_emu_is.nodes, (long)all.size(), __ATOMIC_RELAXED);
    fl_emu_queue(s, [all = std::move(all)] {
        for (const std::function<void()> &one : all)
            one();
    });
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    fl_emu_wait_for_device("cudaGraphExecDestroy");
    cudaError_t e = cudaFree(exec->memory);

    fl_emu_forget(exec);
    delete exec;
    return e;
}
