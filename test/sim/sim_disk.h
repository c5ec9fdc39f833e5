/* sim_disk.h - the disk of simulated jobs: a folder that all processes see,
 * with real files in it, and a machine that can crash. A change of a file is
 * safe when that file is flushed, a name in a folder when that folder is. Of
 * what is not safe a crash leaves any part: a write may be torn, a name may
 * have come without its file's bytes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* From here on, of this process: what is below the folder, which is empty. */
void sim_disk_open(const char *folder);
void sim_disk_close(void);

/* After so many bytes more no write finds room; the n-th flush from now fails.
 * Until sim_disk_mend(). */
void sim_disk_fill(uint64_t bytes);
void sim_disk_fail_flush(int n);
void sim_disk_mend(void);

/* The machine is off: nothing that is still called reaches the disk. Now, or
 * after so many calls more. */
void sim_disk_stop(void);
void sim_disk_stop_after(int n);
bool sim_disk_is_off(void);

/* What the crash has left is there again. */
void sim_disk_crash(uint64_t seed);

/* It is empty again; or a file of the folder has another bit somewhere. False:
 * there is no such folder. */
void sim_disk_wipe(void);
bool sim_disk_flip(const char *folder, uint64_t seed);
