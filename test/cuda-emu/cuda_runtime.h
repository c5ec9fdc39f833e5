/* cuda_runtime.h - CUDA for the host's compiler: stands in for the toolkit's
 * header of that name, so that the library's .cu files compile unchanged. What
 * they use is here, under its own name and with its own numbers; nothing else.
 *
 *   language.h  keywords, threads' indices, barriers, shuffles, atomics, math
 *   runtime.h   memory, streams, events, errors, devices
 *   launch.h    how a kernel is started
 *
 * docs/adr/0018-emulated-device.md says what an emulated device shows and what
 * it cannot.
 */
#pragma once

#include "language.h"
#include "runtime.h"
#include "launch.h"
