/* Moves the clock of one server: LD_PRELOAD it, with STORM_CLOCK a file whose eight bytes are an offset in microseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int64_t none;

static void find(void) {
  const char *path = getenv("STORM_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  void *found = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
  offset = found == MAP_FAILED ? &none : found;
  if (file >= 0) close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  if (!offset) find();
  int answer = real(clock, at);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    int64_t micros = (int64_t)at->tv_sec * 1000000 + at->tv_nsec / 1000 + *offset;
    at->tv_sec = micros / 1000000;
    at->tv_nsec = micros % 1000000 * 1000;
  }
  return answer;
}

int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  int answer = clock_gettime(CLOCK_REALTIME, &now);
  (void)zone;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return answer;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
