/* memory_kit.h - what happens where the system refuses memory: bodies and
 * commands that run in processes of their own with a limit of their address
 * space (RLIMIT_AS), swept in steps. */
#pragma once

#include <stddef.h>

#include <fleet/base.h>

/* How many processes of a sweep ended how. One that was ended by a signal fails
 * the test, with its limit. */
typedef struct memory_ends {
    int fine, refused; /* FLEET_OK; FLEET_ENOMEM */
} memory_ends;

/* The body in a child that may take so many bytes more than it has after the
 * preparation (may be NULL), from 0 to `most` in steps. Skips the test in
 * variants that need the address space. */
memory_ends memory_sweep(void (*prepare)(void), fleet_status (*body)(void),
                         size_t most, size_t step);

/* So many bytes of address space may be taken from here on. */
void memory_limit_to(size_t more);

/* "FLEET_MEMORY_STEP_KB", else `kb`: how fine the sweeps of programs are. */
int memory_step_kb(int kb);

/* Skips the test in variants that need the address space. */
void memory_need_limits(void);
