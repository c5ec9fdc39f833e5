/* nccl_kit.h - ranks on GPUs for the kit of groups (comm_kit.h): emulated ones
 * with the emulated NCCL, or, with FLEET_TEST_DEVICE, the real ones. What the
 * kit has in the host's memory is copied to the GPU before a call and back
 * after it.
 */
#pragma once

#include "nccl-emu/nccl.h"
#include "comm_kit.h"

extern const comm_kit_place nccl_place, nccl_host_place; /* host: not copied */
extern const comm_kit_place nccl_keys_place; /* with keys, not copied either */

/* The library of this name beside the suite: "nccl", "nccl-old", "nccl-less";
 * as many emulated devices as are asked for. */
void nccl_kit_use(const char *name, int devices);

void nccl_kit_fault(fl_nccl_emu_fault fault);
int nccl_kit_live(void);  /* communicators that have not ended */
int nccl_kit_begun(void); /* calls that have begun */

/* A group over device memory as one over the host's, which ends with it. */
fleet_status nccl_kit_stage(fl_comm *inner, int device, fl_comm **p);
