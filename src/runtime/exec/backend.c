/* backend.c - which backend an executor has: the one file of exec that knows of
 * the GPU's. */
#include "runtime/exec/backend.h"

#include "runtime/exec/host_backend.h"

const fl_backend *fl_backend_of(const fl_place *place)
{
    return place->gpu ? &fl_gpu_backend : &fl_host_backend;
}
