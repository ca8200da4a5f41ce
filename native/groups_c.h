// Work-groups in plain C and C++: each work-item is a fiber, and a barrier goes on to the next one. For tests of kernels
// that are written for cards. Every second phase runs backwards, so that a missing barrier shows in the results.
#undef _FORTIFY_SOURCE  // which takes a jump to another stack for a mistake
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#define FIBER_STACK (256L << 10)
enum { FIBER_NEW, FIBER_WAITS, FIBER_DONE };
struct Fiber { jmp_buf at; ucontext_t start; int state; };
static __thread struct {
  struct Fiber* fibers;
  char* stacks;
  int room, current;
  jmp_buf at;
  void (*body)(void**, const long*, int);
  void** args;
  const long* place;
} group_;

static void fiber_main(void) {
  group_.body(group_.args, group_.place, group_.current);
  group_.fibers[group_.current].state = FIBER_DONE;
  _longjmp(group_.at, 1);
}

__attribute__((noinline)) static void fiber_barrier(void) {
  struct Fiber* me = &group_.fibers[group_.current];
  me->state = FIBER_WAITS;
  if (!_setjmp(me->at)) _longjmp(group_.at, 1);
}

// Runs a fiber up to its next barrier or its end.
__attribute__((noinline)) static void fiber_resume(int i) {
  struct Fiber* fiber = &group_.fibers[i];
  group_.current = i;
  if (_setjmp(group_.at)) return;
  if (fiber->state == FIBER_NEW) setcontext(&fiber->start);
  _longjmp(fiber->at, 1);
}

__attribute__((noinline)) static void run_group(int size, void (*body)(void**, const long*, int), void** args, const long* place) {
  if (group_.room < size) {
    free(group_.fibers), free(group_.stacks);
    group_.fibers = (struct Fiber*)malloc(size * sizeof(struct Fiber));
    group_.stacks = (char*)malloc(size * FIBER_STACK);
    group_.room = size;
  }
  group_.body = body, group_.args = args, group_.place = place;
  for (int i = 0; i < size; ++i) {
    struct Fiber* fiber = &group_.fibers[i];
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = group_.stacks + i * FIBER_STACK;
    fiber->start.uc_stack.ss_size = FIBER_STACK;
    fiber->start.uc_link = NULL;
    makecontext(&fiber->start, fiber_main, 0);
    fiber->state = FIBER_NEW;
  }
  for (int phase = 0, done = 0; done < size; ++phase) {
    if (done) fprintf(stderr, "%d of %d work-items wait at a barrier that the others do not reach\n", size - done, size), abort();
    for (int k = 0; k < size; ++k) fiber_resume(phase % 2 ? size - 1 - k : k);
    for (int k = 0; k < size; ++k) done += group_.fibers[k].state == FIBER_DONE;
  }
}
// The compiler must neither keep local memory in registers nor move its accesses across.
#define FIBER_BARRIER (__extension__({ __asm__ volatile("" ::: "memory"); fiber_barrier(); __asm__ volatile("" ::: "memory"); }))
