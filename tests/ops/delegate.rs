//! Platforms of tests that are the CPU platform in most respects.

/// Of an `impl Platform`: what is the CPU platform's.
macro_rules! like_the_cpu {
    () => {
        fn name(&self) -> &'static str {
            "cpu"
        }

        fn graph(&self) -> &dyn wholegraph::platform::graph::GraphKernels {
            CpuPlatform.graph()
        }

        fn learning(&self) -> &dyn wholegraph::platform::learning::LearningKernels {
            CpuPlatform.learning()
        }

        fn caching(&self) -> &dyn wholegraph::platform::caching::CacheKernels {
            CpuPlatform.caching()
        }

        fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn wholegraph::platform::Transport>> {
            CpuPlatform.local_transport(boot)
        }

        fn can_reach(&self, address: wholegraph::span::Address) -> bool {
            CpuPlatform.can_reach(address)
        }
    };
}

pub(crate) use like_the_cpu;
