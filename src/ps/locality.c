/* locality.c - the kernel's boot, namespaces, host and process, read from
 * /proc; folders for sockets of one machine. */
#define _GNU_SOURCE
#include "ps/locality.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"

static unsigned long namespace_of(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? (unsigned long)s.st_ino : 0;
}

void fl_locality_text(char text[160])
{
    unsigned long net = namespace_of("/proc/self/ns/net");
    unsigned long mnt = namespace_of("/proc/self/ns/mnt");
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    char boot[64];

    *text = 0;
    if (f && fgets(boot, sizeof boot, f) && *boot != '\n' && net && mnt)
        snprintf(text, 160, "%.*s/%lu/%lu", (int)strcspn(boot, "\n"), boot, net,
                 mnt);
    if (f)
        fclose(f);
}

void fl_who_text(char text[96])
{
    char host[64] = "?";

    gethostname(host, sizeof host - 1);
    snprintf(text, 96, "%s:%ld", host, (long)getpid());
}

fleet_status fl_ipc_folder_open(fl_ipc_folder *f)
{
    const char *given = getenv("FLEET_IPC_FOLDER");
    struct stat s;

    *f = (fl_ipc_folder){0};
    if (given && *given) {
        if (strlen(given) >= sizeof f->path || lstat(given, &s) != 0 ||
            !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 077)
            return fl_fail(FLEET_EINVAL,
                           "FLEET_IPC_FOLDER is \"%.200s\": expected a folder "
                           "of this user alone (mode 0700), its path at most "
                           "%zu bytes",
                           given, sizeof f->path - 1);
        snprintf(f->path, sizeof f->path, "%s", given);
        return FLEET_OK;
    }
    f->ours = true;
    snprintf(f->path, sizeof f->path, "/tmp/libfleet-XXXXXX");
    if (mkdtemp(f->path))
        return FLEET_OK; /* mkdtemp() makes it 0700 */
    f->path[0] = 0;
    return fl_fail(FLEET_EIO, "cannot make a folder for sockets in /tmp: %s",
                   strerror(errno));
}

fleet_status fl_ipc_folder_again(fl_ipc_folder *f, const char *path)
{
    const char *given = getenv("FLEET_IPC_FOLDER");
    struct stat s;

    *f = (fl_ipc_folder){0};
    if (strlen(path) >= sizeof f->path ||
        (mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &s) != 0 ||
        !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 077)
        return fl_fail(
            FLEET_EIO,
            "the folder %.200s, in which workers look for sockets of "
            "this server, cannot be made again: expected none, or "
            "one of this user alone (mode 0700)",
            path);
    snprintf(f->path, sizeof f->path, "%s", path);
    f->ours = !given || strcmp(given, path) != 0;
    f->again = true;
    return FLEET_OK;
}

/* After a whole job was started again the folder that its fleetrun had is its
 * servers': the last of them removes it. */
void fl_ipc_folder_close(fl_ipc_folder *f)
{
    if (f->again && f->ours)
        rmdir(f->path);
    else if (f->ours && *f->path)
        fl_folder_remove(f->path);
    *f = (fl_ipc_folder){0};
}
