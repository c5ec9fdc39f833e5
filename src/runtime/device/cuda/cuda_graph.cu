/* cuda_graph.cu - what is queued on a stream, kept as a CUDA graph.
 *
 * A capture is the calling thread's affair: what it may not do meanwhile is an
 * error that shows what cannot be captured, while other threads, of the host
 * program or of NCCL, go on as if there were none. In CUDA's global mode a
 * cudaMalloc() of theirs would fail, or spoil the capture; in the relaxed one
 * a mistake of our own would pass unseen.
 */
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/cuda_graph.h"

static cudaGraphExec_t exec_of(fl_graph *g)
{
    return reinterpret_cast<cudaGraphExec_t>(g);
}

fleet_status fl_cuda_capture_begin(fl_device *d, fl_queue *q)
{
    FL_TRY(fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
    return fl_cuda_check(
        cudaStreamBeginCapture(fl_cuda_stream(q),
                               cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
}

/* A graph's memory is not the pool's. */
static cudaError_t instantiate(fl_cuda *c, cudaGraphExec_t *exec,
                               cudaGraph_t graph)
{
    cudaError_t e = cudaGraphInstantiate(exec, graph, 0);

    if (e != cudaErrorMemoryAllocation)
        return e;
    fl_cuda_trim(c);
    return cudaGraphInstantiate(exec, graph, 0);
}

fleet_status fl_cuda_capture_end(fl_device *d, fl_queue *q, fl_graph **g)
{
    cudaGraphExec_t exec = nullptr;
    cudaGraph_t graph = nullptr;
    fleet_status status =
        fl_cuda_check(cudaStreamEndCapture(fl_cuda_stream(q), &graph),
                      "cudaStreamEndCapture");

    *g = nullptr;
    if (status == FLEET_OK)
        status = fl_cuda_check(instantiate(fl_cuda_of(d), &exec, graph),
                               "cudaGraphInstantiate");
    if (status == FLEET_OK) /* so that the first launch brings nothing */
        status = fl_cuda_check(cudaGraphUpload(exec, fl_cuda_stream(q)),
                               "cudaGraphUpload");
    if (graph)
        cudaGraphDestroy(graph);
    if (status == FLEET_OK)
        *g = reinterpret_cast<fl_graph *>(exec);
    else if (exec)
        cudaGraphExecDestroy(exec);
    cudaGetLastError(); /* what a failed capture leaves is said by now */
    return status;
}

fleet_status fl_cuda_graph_launch(fl_device *d, fl_queue *q, fl_graph *g)
{
    FL_TRY(fl_cuda_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
    return fl_cuda_check(cudaGraphLaunch(exec_of(g), fl_cuda_stream(q)),
                         "cudaGraphLaunch");
}

void fl_cuda_graph_destroy(fl_device *d, fl_graph *g)
{
    if (g && fl_cuda_may_free(d))
        cudaGraphExecDestroy(exec_of(g));
}
