//! Bad input to every C function: the code of its contract, a sentence with what was given, outputs untouched, nobody waiting.

mod ranks;

use ranks::*;
use std::ptr::{null, null_mut};
use wholegraph::ffi::embedding::*;
use wholegraph::ffi::env_func_ptrs::*;
use wholegraph::ffi::global_reference::*;
use wholegraph::ffi::graph_op::*;
use wholegraph::ffi::hdfs::*;
use wholegraph::ffi::tensor_description::*;
use wholegraph::ffi::wholegraph_op::*;
use wholegraph::ffi::wholememory::communicator::*;
use wholegraph::ffi::wholememory::file::*;
use wholegraph::ffi::wholememory::library::*;
use wholegraph::ffi::wholememory::memory::*;
use wholegraph::ffi::wholememory_op::*;
use wholegraph::ffi::wholememory_tensor::*;

const FLOAT: u32 = 1;
const INT: u32 = 5;
const INT64: u32 = 6;
const II: wholememory_error_code_t = WHOLEMEMORY_INVALID_INPUT;

/// Calls every function that takes a handle of one kind with a value that is none.
fn refuse_handles(value: usize, words: &str) {
    let comm = value as wholememory_comm_t;
    let handle = value as wholememory_handle_t;
    let tensor = value as wholememory_tensor_t;
    let (mut int, mut size, mut pointer) = (7i32, 7usize, 7 as *mut std::ffi::c_void);
    let mut other = 7 as wholememory_comm_t;
    let mut made = 7 as wholememory_tensor_t;
    let mut memory = 7 as wholememory_handle_t;
    let mut table = description(&[4, 6], &[8, 1], 0, FLOAT);
    let mut gref = wholememory_gref_t {
        pointer: 7 as *mut _,
        ..plain_reference()
    };
    let mut clique = clique_info_t {
        is_in_clique: 7,
        clique_first_rank: 7,
        clique_rank: 7,
        clique_rank_num: 7,
        clique_id: 7,
        clique_num: 7,
    };
    let refused = |code| bad(code, II, words);
    // SAFETY: all places outlive the calls; the handles are numbers.
    unsafe {
        refused(wholememory_split_communicator(&mut other, comm, 0, 0));
        refused(wholememory_destroy_communicator(comm));
        refused(wholememory_communicator_support_type_location(
            comm,
            raw(1),
            raw(1),
        ));
        refused(wholememory_communicator_get_rank(&mut int, comm));
        refused(wholememory_communicator_get_size(&mut int, comm));
        refused(wholememory_communicator_get_local_size(&mut int, comm));
        refused(wholememory_communicator_get_clique_info(&mut clique, comm));
        refused(wholememory_communicator_set_distributed_backend(comm, raw(1)));
        refused(wholememory_communicator_barrier(comm));
        refused(wholememory_malloc(
            &mut memory,
            8,
            comm,
            raw(1),
            raw(1),
            8,
            null_mut(),
        ));
        refused(wholememory_create_tensor(
            &mut made,
            &mut table,
            comm,
            raw(1),
            raw(1),
            null_mut(),
        ));
        refused(wholememory_free(handle));
        refused(wholememory_get_communicator(&mut other, handle));
        refused(wholememory_get_local_communicator(&mut other, handle));
        refused(wholememory_get_cross_communicator(&mut other, handle));
        refused(wholememory_get_local_memory(
            &mut pointer,
            &mut size,
            &mut size,
            handle,
        ));
        refused(wholememory_get_local_size(&mut size, handle));
        refused(wholememory_get_local_offset(&mut size, handle));
        refused(wholememory_get_rank_memory(
            &mut pointer,
            &mut size,
            &mut size,
            0,
            handle,
        ));
        refused(wholememory_get_global_pointer(&mut pointer, handle));
        refused(wholememory_get_global_reference(&mut gref, handle));
        refused(wholememory_get_rank_partition_sizes(&mut size, handle));
        refused(wholememory_get_rank_partition_offsets(&mut size, handle));
        refused(wholememory_load_from_file(handle, 0, 4, 4, null_mut(), 0, 0));
        refused(wholememory_store_to_file(handle, 0, 4, 4, null()));
        refused(wholememory_make_tensor_from_handle(&mut made, handle, &mut table));
        refused(wholememory_destroy_tensor(tensor));
        refused(wholememory_tensor_get_global_reference(tensor, &mut gref));
        refused(wholememory_tensor_map_local_tensor(tensor, &mut made));
        refused(wholememory_tensor_get_entry_offsets(&mut size, tensor));
        refused(wholememory_tensor_get_entry_partition_sizes(&mut size, tensor));
        refused(wholememory_tensor_get_local_entry_count(&mut size, tensor));
        refused(wholememory_tensor_get_local_entry_start(&mut size, tensor));
        refused(wholememory_tensor_get_subtensor(
            tensor, &mut 0, &mut 1, &mut made,
        ));
        refused(wholememory_gather(
            tensor,
            tensor,
            tensor,
            null_mut(),
            null_mut(),
            -1,
        ));
        refused(wholememory_scatter(
            tensor,
            tensor,
            tensor,
            null_mut(),
            null_mut(),
            -1,
        ));
        refused(wholememory_env_test_op(
            tensor,
            tensor,
            null_mut(),
            null_mut(),
            null_mut(),
            1,
            null_mut(),
            null_mut(),
        ));
        refused(generate_random_positive_int_cpu(1, 1, tensor));
        refused(generate_exponential_distribution_negative_float_cpu(1, 1, tensor));
        refused(csr_add_self_loop(tensor, tensor, tensor, tensor, null_mut()));
        refused(graph_append_unique(
            tensor,
            tensor,
            null_mut(),
            tensor,
            null_mut(),
            null_mut(),
        ));
        let (none, seed) = (null_mut(), 1);
        refused(wholegraph_csr_unweighted_sample_without_replacement(
            tensor,
            tensor,
            tensor,
            3,
            tensor,
            none,
            none,
            none,
            seed,
            null_mut(),
            none,
        ));
        refused(wholegraph_csr_weighted_sample_without_replacement(
            tensor,
            tensor,
            tensor,
            tensor,
            3,
            tensor,
            none,
            none,
            none,
            seed,
            null_mut(),
            none,
        ));
        // Functions without a code: their fault value.
        assert_eq!(wholememory_communicator_get_distributed_backend(comm) as u32, 0);
        assert!(!wholememory_is_intranode_communicator(comm));
        assert!(!wholememory_is_intra_mnnvl_communicator(comm));
        assert!(!wholememory_communicator_is_bind_to_nvshmem(comm));
        assert_eq!(wholememory_get_memory_type(handle) as u32, 0);
        assert_eq!(wholememory_get_memory_location(handle) as u32, 0);
        assert_eq!(wholememory_get_distributed_backend(handle) as u32, 0);
        assert_eq!(wholememory_get_total_size(handle), 0);
        assert_eq!(wholememory_get_data_granularity(handle), 0);
        assert!(!wholememory_tensor_has_handle(tensor));
        assert!(wholememory_tensor_get_memory_handle(tensor).is_null());
        assert!(wholememory_tensor_get_tensor_description(tensor).is_null());
        assert!(wholememory_tensor_get_data_pointer(tensor).is_null());
        assert!(wholememory_tensor_get_root(tensor).is_null());
        assert!(last_error().contains(words), "{}", last_error());
    }
    assert_eq!((int, size, pointer as usize, other as usize), (7, 7, 7, 7));
    assert_eq!((made as usize, memory as usize, clique.clique_num), (7, 7, 7));
    assert_eq!(gref.pointer as usize, 7);
}

fn plain_reference() -> wholememory_gref_t {
    // SAFETY: any pointer may be given.
    unsafe { wholememory_create_continuous_global_reference(null_mut()) }
}

#[test]
fn handles_that_are_none_are_refused_everywhere() {
    refuse_handles(0, "NULL");
    let stack = [0u64; 32];
    refuse_handles(stack.as_ptr() as usize, "no handle of this library");
    refuse_handles(usize::MAX, "no handle of this library");
    refuse_handles(3, "no handle of this library");
}

#[test]
fn dead_handles_and_wrong_kinds_say_so() {
    with_ranks(1, |_, comm| {
        let handle = malloc(comm, CONTINUOUS, HOST, 64, 8);
        let mut size = 0;
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            bad(
                wholememory_free(comm.cast()),
                II,
                "a communicator, not a memory handle",
            );
            bad(
                wholememory_destroy_tensor(handle.cast()),
                II,
                "a memory handle, not a tensor",
            );
            good(wholememory_free(handle));
            bad(wholememory_free(handle), II, "dead");
            bad(
                wholememory_get_local_size(&mut size, handle),
                II,
                "does not exist any more",
            );
            good(wholememory_destroy_communicator(comm));
            bad(wholememory_free(handle), II, "does not exist any more");
            bad(
                wholememory_communicator_barrier(comm),
                II,
                "does not exist any more",
            );
            bad(
                wholememory_destroy_communicator(comm),
                II,
                "does not exist any more",
            );
        }
    });
}

#[test]
fn null_places_are_refused() {
    with_ranks(1, |_, comm| {
        let handle = malloc(comm, HIERARCHY, HOST, 64, 8);
        let mut data = [0f32; 32];
        let tensor = over(&mut data, &[4, 6], &[8, 1], FLOAT);
        let mut table = description(&[4, 6], &[8, 1], 0, FLOAT);
        // SAFETY: NULL is what the functions check for.
        unsafe {
            let refused = |code| bad(code, II, "NULL");
            refused(wholememory_create_unique_id(null_mut()));
            refused(wholememory_create_communicator(null_mut(), unique_id(), 0, 1));
            refused(wholememory_split_communicator(null_mut(), comm, 0, 0));
            refused(wholememory_communicator_get_rank(null_mut(), comm));
            refused(wholememory_communicator_get_size(null_mut(), comm));
            refused(wholememory_communicator_get_local_size(null_mut(), comm));
            refused(wholememory_communicator_get_clique_info(null_mut(), comm));
            refused(wholememory_malloc(
                null_mut(),
                8,
                comm,
                raw(1),
                raw(1),
                8,
                null_mut(),
            ));
            refused(wholememory_get_communicator(null_mut(), handle));
            refused(wholememory_get_local_communicator(null_mut(), handle));
            refused(wholememory_get_cross_communicator(null_mut(), handle));
            refused(wholememory_get_local_size(null_mut(), handle));
            refused(wholememory_get_local_offset(null_mut(), handle));
            refused(wholememory_get_global_pointer(null_mut(), handle));
            refused(wholememory_get_global_reference(null_mut(), handle));
            refused(wholememory_get_rank_partition_sizes(null_mut(), handle));
            refused(wholememory_get_rank_partition_offsets(null_mut(), handle));
            refused(wholememory_equal_entry_partition_plan(null_mut(), 1, 1));
            refused(wholememory_load_from_file(handle, 0, 8, 8, null_mut(), 1, 0));
            refused(wholememory_load_from_file(handle, 0, 8, 8, &mut null(), 1, 0));
            refused(wholememory_store_to_file(handle, 0, 8, 8, null()));
            refused(wholememory_create_tensor(
                null_mut(),
                &mut table,
                comm,
                raw(1),
                raw(1),
                null_mut(),
            ));
            refused(wholememory_create_tensor(
                &mut null_mut(),
                null_mut(),
                comm,
                raw(1),
                raw(1),
                null_mut(),
            ));
            refused(wholememory_make_tensor_from_pointer(
                null_mut(),
                null_mut(),
                &mut table,
            ));
            refused(wholememory_make_tensor_from_pointer(
                &mut null_mut(),
                null_mut(),
                null_mut(),
            ));
            refused(wholememory_make_tensor_from_handle(
                null_mut(),
                handle,
                &mut table,
            ));
            refused(wholememory_make_tensor_from_handle(
                &mut null_mut(),
                handle,
                null_mut(),
            ));
            refused(wholememory_tensor_get_global_reference(tensor, null_mut()));
            refused(wholememory_tensor_map_local_tensor(tensor, null_mut()));
            refused(wholememory_tensor_get_entry_offsets(null_mut(), tensor));
            refused(wholememory_tensor_get_entry_partition_sizes(null_mut(), tensor));
            refused(wholememory_tensor_get_local_entry_count(null_mut(), tensor));
            refused(wholememory_tensor_get_local_entry_start(null_mut(), tensor));
            refused(wholememory_tensor_get_subtensor(
                tensor,
                null_mut(),
                &mut 0,
                &mut null_mut(),
            ));
            refused(wholememory_tensor_get_subtensor(
                tensor,
                &mut 0,
                null_mut(),
                &mut null_mut(),
            ));
            refused(wholememory_tensor_get_subtensor(
                tensor,
                &mut 0,
                &mut 0,
                null_mut(),
            ));
            assert!(!wholememory_squeeze_tensor(null_mut(), 0));
            assert!(!wholememory_unsqueeze_tensor(null_mut(), 0));
            assert_eq!(wholememory_get_memory_size_from_tensor(null_mut()), -1);
            assert_eq!(
                wholememory_create_matrix_desc(null_mut(), 8, 0, raw(FLOAT)).sizes,
                [0, 0]
            );
            wholememory_initialize_tensor_desc(null_mut());
            wholememory_copy_array_desc_to_tensor(&mut table, null_mut());
            good(wholememory_get_local_memory(
                null_mut(),
                null_mut(),
                null_mut(),
                handle,
            ));
        }
        destroy(tensor);
    });
}

#[test]
fn wild_enumerators_have_the_codes_of_the_contract() {
    with_ranks(1, |_, comm| {
        let mut handle = null_mut();
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            for wild in [0, 5, 99, u32::MAX] {
                let malloc = |kind, place| {
                    wholememory_malloc(&mut null_mut(), 8, comm, raw(kind), raw(place), 8, null_mut())
                };
                bad(malloc(wild, HOST), WHOLEMEMORY_INVALID_VALUE, "memory_type");
                let supports =
                    |kind, place| wholememory_communicator_support_type_location(comm, raw(kind), raw(place));
                bad(supports(wild, HOST), WHOLEMEMORY_NOT_SUPPORTED, "memory type");
                bad(
                    supports(CONTINUOUS, wild),
                    WHOLEMEMORY_NOT_SUPPORTED,
                    "memory location",
                );
                let backend = wholememory_communicator_set_distributed_backend(comm, raw(wild));
                bad(backend, WHOLEMEMORY_INVALID_VALUE, "backend");
                assert_eq!(wholememory_dtype_get_element_size(raw(wild.max(10))), usize::MAX);
                let optimizer = wholememory_create_embedding_optimizer(&mut null_mut(), raw(wild));
                bad(optimizer, WHOLEMEMORY_NOT_IMPLEMENTED, "optimizer");
            }
            let nvshmem = wholememory_communicator_set_distributed_backend(comm, raw(2));
            bad(nvshmem, WHOLEMEMORY_NOT_SUPPORTED, "NVSHMEM");
            good(wholememory_communicator_set_distributed_backend(comm, raw(1)));
            let zero = wholememory_malloc(&mut handle, 8, comm, raw(1), raw(1), 0, null_mut());
            bad(zero, WHOLEMEMORY_INVALID_VALUE, "granularity");
            assert!(handle.is_null());
        }
    });
}

#[test]
fn graphs_and_embeddings_check_their_arguments() {
    let mut data = [0i64; 8];
    let ids = over(&mut data, &[4], &[1], INT64);
    let ints = over(&mut data, &[4], &[1], INT);
    let context = std::ptr::dangling_mut::<std::ffi::c_void>();
    let mut ignored = wholememory_env_func_t {
        temporary_fns: wholememory_temp_memory_func_t {
            create_memory_context_fn: None,
            destroy_memory_context_fn: None,
            malloc_fn: None,
            free_fn: None,
            global_context: null_mut(),
        },
        output_fns: wholememory_output_memory_func_t {
            malloc_fn: None,
            free_fn: None,
            global_context: null_mut(),
        },
    };
    let later = |code| bad(code, WHOLEMEMORY_NOT_IMPLEMENTED, "not in this version");
    // SAFETY: all places outlive the calls.
    unsafe {
        bad(
            csr_add_self_loop(ints, ints, ints, ints, null_mut()),
            II,
            "the result has 7",
        );
        bad(
            csr_add_self_loop(ints, ids, ints, ints, null_mut()),
            II,
            "column tensor",
        );
        bad(
            graph_append_unique(ids, ids, context, ints, &mut ignored, null_mut()),
            II,
            "create_memory_context_fn",
        );
        bad(
            graph_append_unique(ids, ids, context, ints, null_mut(), null_mut()),
            II,
            "p_env_fns",
        );
        bad(
            graph_append_unique(ids, ids, null_mut(), ints, &mut ignored, null_mut()),
            II,
            "context",
        );
        bad(
            graph_append_unique(ids, ints, context, ints, &mut ignored, null_mut()),
            WHOLEMEMORY_LOGIC_ERROR,
            "INT64",
        );
        let none = null_mut();
        bad(
            wholegraph_csr_unweighted_sample_without_replacement(
                ids,
                ints,
                ids,
                3,
                ints,
                context,
                none,
                none,
                1,
                &mut ignored,
                none,
            ),
            II,
            "offset tensor has 4 elements for 4 centers",
        );
        // Its values are looked at when an embedding is made.
        let mut policy = null_mut();
        good(wholememory_create_embedding_cache_policy(
            &mut policy,
            single(),
            raw(99),
            raw(99),
            raw(99),
            0.5,
        ));
        good(wholememory_destroy_embedding_cache_policy(policy));
        bad(
            wholememory_destroy_embedding_cache_policy(policy),
            II,
            "destroyed",
        );
        bad(
            wholememory_create_embedding_cache_policy(
                &mut null_mut(),
                null_mut(),
                raw(1),
                raw(1),
                raw(1),
                f32::NAN,
            ),
            WHOLEMEMORY_INVALID_VALUE,
            "NaN",
        );
        good(wholememory_destroy_embedding_cache_policy(null_mut()));
        wholememory_destroy_embedding_optimizer(null_mut());
        bad(wholememory_destroy_embedding(null_mut()), II, "NULL");
        bad(
            wholememory_optimizer_set_parameter(null_mut(), c"epsilon".as_ptr(), null_mut()),
            II,
            "NULL",
        );
        assert!(wholememory_embedding_get_embedding_tensor(8 as *mut _).is_null());
        assert!(wholememory_embedding_get_optimizer_state(null_mut(), c"m".as_ptr()).is_null());
        assert!(wholememory_embedding_get_optimizer_state_names(null_mut()).is_null());
        later(wholememory_load_hdfs_support());
        assert!(!wholememory_is_build_with_nvshmem());
        assert!(get_device_prop(0).is_null());
    }
    destroy(ids);
    destroy(ints);
}

fn single() -> wholememory_comm_t {
    communicator(unique_id(), 0, 1)
}

#[test]
fn a_rank_with_bad_arguments_lets_nobody_wait() {
    with_ranks(2, |rank, comm| {
        let place: wholememory_handle_t = null_mut();
        let mut handle = place;
        let mut child = null_mut();
        let mut table = description(&[4, 6], &[if rank == 1 { 5 } else { 8 }, 1], 0, FLOAT);
        let mut tensor = null_mut();
        let first = rank == 0;
        // SAFETY: handles are numbers; the places outlive the calls.
        unsafe {
            let out = if first { null_mut() } else { &mut handle };
            bad(
                wholememory_malloc(out, 64, comm, raw(1), raw(2), 8, null_mut()),
                II,
                "NULL",
            );
            let out = if first { &mut child } else { null_mut() };
            bad(wholememory_split_communicator(out, comm, 0, 0), II, "NULL");
            let code = wholememory_create_tensor(&mut tensor, &mut table, comm, raw(1), raw(2), null_mut());
            bad(code, WHOLEMEMORY_INVALID_VALUE, "less than the 6 columns");
            let total = if first { 64 } else { 72 };
            let code = wholememory_malloc(&mut handle, total, comm, raw(1), raw(2), 8, null_mut());
            bad(
                code,
                WHOLEMEMORY_INVALID_VALUE,
                "rank 0 passed 64, rank 1 passed 72",
            );
            good(wholememory_communicator_barrier(comm));
            let alive = malloc(comm, CHUNKED, HOST, 64, 8);
            let dead = malloc(comm, CHUNKED, HOST, 64, 8);
            good(wholememory_free(dead));
            bad(wholememory_free(if first { dead } else { alive }), II, "dead");
            good(wholememory_free(alive));
        }
        assert!(handle.is_null() && child.is_null() && tensor.is_null());
    });
}
