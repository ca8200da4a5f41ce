// Replaying plans: allocate, launch, wrap. And views, which only wrap.
#include "hot.h"

// What wrapping a tensor takes, the same for all: torch's maker, our class, the device that C++ sees.
typedef struct {
  PyObject *make, *cls, *device;
} Wrapper;

typedef struct {
  int slot;
  PyObject *layout, *spec, *offset;  // spec NULL: the argument itself
} Result;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Wrapper wrapper;
  PyObject *allocator, *allocs, *steps, *pack;
  int n_inputs, n_results, all_ours;  // all_ours: no step needs Python lists
  Result* results;
} Replay;

static PyObject* make_names;  // ("dtype", "device")

// `layout`: (shape, strides, dtype, whether it is row-major); a row-major tensor at the start of its buffer is made faster.
static PyObject* make_tensor(const Wrapper* w, PyObject* layout, PyObject* offset, int at_start) {
  PyObject* args[6] = {w->cls, PyTuple_GET_ITEM(layout, 0)};
  size_t n = 2;
  if (!at_start || PyTuple_GET_ITEM(layout, 3) != Py_True) {
    args[n++] = PyTuple_GET_ITEM(layout, 1);
    args[n++] = offset;
  }
  args[n] = PyTuple_GET_ITEM(layout, 2);
  args[n + 1] = w->device;
  return PyObject_Vectorcall(w->make, args, n, make_names);
}

static PyObject* wrap_buffer(const Wrapper* w, PyObject* layout, PyObject* spec, PyObject* buffer, PyObject* offset,
                             int at_start) {
  PyObject* tensor = make_tensor(w, layout, offset, at_start);
  if (!tensor) return NULL;
  if (PyObject_SetAttr(tensor, s_buffer, buffer) || PyObject_SetAttr(tensor, s_spec, spec) ||
      PyObject_SetAttr(tensor, s_offset, offset)) {
    Py_DECREF(tensor);
    return NULL;
  }
  return tensor;
}

static int is_ours(PyObject* step) { return Py_IS_TYPE(step, &CallType) || Py_IS_TYPE(step, &EnqueueType); }

static int step_now(PyObject* step, PyObject** handles, const Py_ssize_t* offsets, int n, PyObject* values) {
  if (Py_IS_TYPE(step, &CallType)) return call_now(step, handles, offsets, values);
  return enqueue_now(step, handles, offsets, n, values);
}

static int run_steps(Replay* self, PyObject** handles, Py_ssize_t* offsets, int n, PyObject* values) {
  const Py_ssize_t n_steps = PyTuple_GET_SIZE(self->steps);
  PyObject *list = NULL, *starts = NULL;
  if (!self->all_ours) {
    list = PyList_New(n), starts = PyList_New(n);
    if (!list || !starts) goto fail;
    for (int i = 0; i < n; ++i) {
      PyList_SET_ITEM(list, i, Py_NewRef(handles[i]));
      PyList_SET_ITEM(starts, i, PyLong_FromSsize_t(offsets[i]));
    }
  }
  for (Py_ssize_t i = 0; i < n_steps; ++i) {
    PyObject* step = PyTuple_GET_ITEM(self->steps, i);
    if (is_ours(step)) {
      if (step_now(step, handles, offsets, n, values)) goto fail;
      continue;
    }
    PyObject* args[3] = {list, starts, values};
    PyObject* done = PyObject_Vectorcall(step, args, 3, NULL);
    if (!done) goto fail;
    Py_DECREF(done);
  }
  Py_XDECREF(list);
  Py_XDECREF(starts);
  return 0;
fail:
  Py_XDECREF(list);
  Py_XDECREF(starts);
  return -1;
}

static PyObject* result_of(Replay* self, const Result* r, PyObject* tensors, PyObject** owners) {
  if (!r->spec) return Py_NewRef(PyList_GET_ITEM(tensors, r->slot));
  return wrap_buffer(&self->wrapper, r->layout, r->spec, owners[r->slot], r->offset, 1);
}

static PyObject* results_of(Replay* self, PyObject* tensors, PyObject** owners) {
  if (self->pack == Py_None) return result_of(self, &self->results[0], tensors, owners);
  PyObject* flat = PyList_New(self->n_results);
  if (!flat) return NULL;
  for (int i = 0; i < self->n_results; ++i) {
    PyObject* made = result_of(self, &self->results[i], tensors, owners);
    if (!made) {
      Py_DECREF(flat);
      return NULL;
    }
    PyList_SET_ITEM(flat, i, made);
  }
  PyObject* packed = PyObject_CallOneArg(self->pack, flat);
  Py_DECREF(flat);
  return packed;
}

static int take_inputs(PyObject* tensors, int n, PyObject** owners, Py_ssize_t* offsets) {
  for (int i = 0; i < n; ++i) {
    PyObject* t = PyList_GET_ITEM(tensors, i);
    owners[i] = PyObject_GetAttr(t, s_buffer);
    if (!owners[i]) return i;
    PyObject* offset = PyObject_GetAttr(t, s_offset);
    offsets[i] = offset ? PyLong_AsSsize_t(offset) : -1;
    Py_XDECREF(offset);
    if (offsets[i] == -1 && PyErr_Occurred()) return i + 1;
  }
  return n;
}

static int take_new(Replay* self, PyObject** owners, Py_ssize_t* offsets) {
  const int n = (int)PyTuple_GET_SIZE(self->allocs);
  for (int i = 0; i < n; ++i) {
    PyObject* a = PyTuple_GET_ITEM(self->allocs, i);
    owners[i] = PyLong_CheckExact(a) ? allocate(self->allocator, a) : Py_NewRef(a);
    if (!owners[i]) return i;
    offsets[i] = 0;
  }
  return n;
}

static PyObject* replay_call(PyObject* object, PyObject* const* args, size_t nargs, PyObject* names) {
  Replay* self = (Replay*)object;
  if (PyVectorcall_NARGS(nargs) < 2 || names || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) ||
      PyList_GET_SIZE(args[0]) < self->n_inputs) {
    PyErr_SetString(PyExc_TypeError, "a plan takes lists of tensors and values");
    return NULL;
  }
  PyObject *tensors = args[0], *result = NULL, *owners[MAX_SLOTS], *handles[MAX_SLOTS];
  Py_ssize_t offsets[MAX_SLOTS];
  const int inputs = self->n_inputs, all = inputs + (int)PyTuple_GET_SIZE(self->allocs);
  int owned = take_inputs(tensors, inputs, owners, offsets);
  if (owned == inputs && !PyErr_Occurred()) owned += take_new(self, owners + inputs, offsets + inputs);
  if (owned == all && !PyErr_Occurred()) {
    int i = 0;
    for (; i < all; ++i) {
      if (Py_IS_TYPE(owners[i], &BufferType)) {
        handles[i] = ((Buffer*)owners[i])->handle;
      } else {
        PyErr_SetString(PyExc_TypeError, "a tensor without a buffer");
        break;
      }
    }
    if (i == all && !run_steps(self, handles, offsets, all, args[1])) result = results_of(self, tensors, owners);
  }
  for (int i = 0; i < owned; ++i) Py_DECREF(owners[i]);
  return result;
}

static int take_wrapper(Wrapper* w, PyObject* parts) {
  if (!PyArg_ParseTuple(parts, "OOO", &w->make, &w->cls, &w->device)) return -1;
  Py_INCREF(w->make);
  Py_INCREF(w->cls);
  Py_INCREF(w->device);
  return 0;
}

// Replay(wrapper, allocator, n_inputs, allocs, steps, results, pack): a result is (slot, layout, spec), spec None for an
// argument itself, else that of a new buffer; pack None where the only result is returned as it is.
static PyObject* replay_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *wrapper, *allocator, *allocs, *steps, *results, *pack;
  int n_inputs;
  if (!PyArg_ParseTuple(args, "O!OiO!O!O!O", &PyTuple_Type, &wrapper, &allocator, &n_inputs, &PyTuple_Type,
                        &allocs, &PyTuple_Type, &steps, &PyTuple_Type, &results, &pack))
    return NULL;
  const Py_ssize_t n = PyTuple_GET_SIZE(results), slots = n_inputs + PyTuple_GET_SIZE(allocs);
  if (slots > MAX_SLOTS || (pack == Py_None && n != 1)) {
    PyErr_SetString(PyExc_ValueError, "more slots than a replay holds, or results that do not fit its pack");
    return NULL;
  }
  Replay* self = (Replay*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = replay_call;
  self->n_inputs = n_inputs;
  self->allocator = Py_NewRef(allocator);
  self->allocs = Py_NewRef(allocs);
  self->steps = Py_NewRef(steps);
  self->pack = Py_NewRef(pack);
  self->all_ours = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i)
    self->all_ours &= is_ours(PyTuple_GET_ITEM(steps, i));
  self->results = PyMem_Calloc(n + 1, sizeof(Result));
  if (!self->results || take_wrapper(&self->wrapper, wrapper)) goto fail;
  for (Py_ssize_t i = 0; i < n; ++i) {
    Result* r = &self->results[i];
    PyObject *layout, *spec;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(results, i), "iO!O", &r->slot, &PyTuple_Type, &layout, &spec)) goto fail;
    if (r->slot < (spec == Py_None ? 0 : n_inputs) || r->slot >= (spec == Py_None ? n_inputs : slots)) {
      PyErr_SetString(PyExc_ValueError, "a result of no slot");
      goto fail;
    }
    r->layout = Py_NewRef(layout);
    r->spec = spec == Py_None ? NULL : Py_NewRef(spec);
    r->offset = PyLong_FromLong(0);
    self->n_results++;
  }
  return (PyObject*)self;
fail:
  Py_DECREF(self);
  return NULL;
}

static int replay_traverse(PyObject* object, visitproc visit, void* arg) {
  Replay* self = (Replay*)object;
  Py_VISIT(self->allocator);
  Py_VISIT(self->allocs);
  Py_VISIT(self->steps);
  Py_VISIT(self->pack);
  for (int i = 0; i < self->n_results; ++i) Py_VISIT(self->results[i].spec);
  return 0;
}

static void replay_dealloc(PyObject* object) {
  Replay* self = (Replay*)object;
  PyObject_GC_UnTrack(object);
  for (int i = 0; i < self->n_results; ++i) {
    Py_XDECREF(self->results[i].layout);
    Py_XDECREF(self->results[i].spec);
    Py_XDECREF(self->results[i].offset);
  }
  PyMem_Free(self->results);
  Py_XDECREF(self->allocator);
  Py_XDECREF(self->allocs);
  Py_XDECREF(self->steps);
  Py_XDECREF(self->pack);
  Py_XDECREF(self->wrapper.make);
  Py_XDECREF(self->wrapper.cls);
  Py_XDECREF(self->wrapper.device);
  Py_TYPE(object)->tp_free(object);
}

PyTypeObject ReplayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Replay",
    .tp_basicsize = sizeof(Replay),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Replay, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = replay_new,
    .tp_traverse = replay_traverse,
    .tp_dealloc = replay_dealloc,
};

// -- views ---------------------------------------------------------------------------------------------------------
typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Wrapper wrapper;
  PyObject *layout, *spec, *inference, *slow;
  int index;
  Py_ssize_t offset;
} View;

static PyObject* view_call(PyObject* object, PyObject* const* args, size_t nargs, PyObject* names) {
  View* self = (View*)object;
  if (PyVectorcall_NARGS(nargs) < 2 || names || !PyList_CheckExact(args[0]) || PyList_GET_SIZE(args[0]) <= self->index) {
    PyErr_SetString(PyExc_TypeError, "a plan takes lists of tensors and values");
    return NULL;
  }
  // Under inference mode a view of a normal tensor is a normal tensor: Python knows how.
  PyObject* on = PyObject_CallNoArgs(self->inference);
  if (!on) return NULL;
  Py_DECREF(on);
  if (on != Py_False) return PyObject_Vectorcall(self->slow, args, nargs, NULL);
  PyObject* base = PyList_GET_ITEM(args[0], self->index);
  PyObject *buffer = PyObject_GetAttr(base, s_buffer), *start = NULL, *made = NULL;
  if (buffer) start = PyObject_GetAttr(base, s_offset);
  if (start && self->offset) {
    Py_ssize_t at = PyLong_AsSsize_t(start);
    Py_SETREF(start, at == -1 && PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at + self->offset));
  }
  if (start) {
    const int at_start = Py_SIZE(start) == 0;  // the number 0
    made = wrap_buffer(&self->wrapper, self->layout, self->spec, buffer, start, at_start);
  }
  Py_XDECREF(start);
  Py_XDECREF(buffer);
  return made;
}

// View(wrapper, index, layout, spec, offset, is_inference_mode_enabled, slow)
static PyObject* view_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *wrapper, *layout, *spec, *inference, *slow;
  int index;
  Py_ssize_t offset;
  if (!PyArg_ParseTuple(args, "O!iO!OnOO", &PyTuple_Type, &wrapper, &index, &PyTuple_Type, &layout, &spec, &offset,
                        &inference, &slow))
    return NULL;
  View* self = (View*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = view_call;
  self->index = index;
  self->offset = offset;
  self->layout = Py_NewRef(layout);
  self->spec = Py_NewRef(spec);
  self->inference = Py_NewRef(inference);
  self->slow = Py_NewRef(slow);
  if (take_wrapper(&self->wrapper, wrapper)) {
    Py_DECREF(self);
    return NULL;
  }
  return (PyObject*)self;
}

static int view_traverse(PyObject* object, visitproc visit, void* arg) {
  View* self = (View*)object;
  Py_VISIT(self->spec);
  Py_VISIT(self->slow);
  return 0;
}

static int view_clear(PyObject* object) {
  View* self = (View*)object;
  Py_CLEAR(self->slow);
  return 0;
}

static void view_dealloc(PyObject* object) {
  View* self = (View*)object;
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->layout);
  Py_XDECREF(self->spec);
  Py_XDECREF(self->inference);
  Py_XDECREF(self->slow);
  Py_XDECREF(self->wrapper.make);
  Py_XDECREF(self->wrapper.cls);
  Py_XDECREF(self->wrapper.device);
  Py_TYPE(object)->tp_free(object);
}

PyTypeObject ViewType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.View",
    .tp_basicsize = sizeof(View),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(View, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = view_new,
    .tp_traverse = view_traverse,
    .tp_clear = view_clear,
    .tp_dealloc = view_dealloc,
};

int init_replay(void) {
  make_names = Py_BuildValue("(ss)", "dtype", "device");
  return make_names ? 0 : -1;
}
