# cmake --install and cpack: the program, its manual page and shell completions (both printed by the program), presets,
# documentation, and examples for clusters.
include(GNUInstallDirs)

install(TARGETS extreme_gpu_trainer RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
set(egt_printed "${CMAKE_BINARY_DIR}/printed")
file(MAKE_DIRECTORY "${egt_printed}")

# egt_install_printed(WHAT DIRECTORY NAME): installs the output of `extreme_gpu_trainer help WHAT`.
function(egt_install_printed what directory name)
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:extreme_gpu_trainer>\" help ${what}
    OUTPUT_FILE \"${egt_printed}/${name}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES "${egt_printed}/${name}" DESTINATION "${directory}")
endfunction()
egt_install_printed(man "${CMAKE_INSTALL_MANDIR}/man1" extreme_gpu_trainer.1)
egt_install_printed(bash "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" extreme_gpu_trainer)
egt_install_printed(zsh "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions" _extreme_gpu_trainer)
egt_install_printed(fish "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" extreme_gpu_trainer.fish)
install(DIRECTORY presets DESTINATION "${CMAKE_INSTALL_DATADIR}/extreme_gpu_trainer")
install(FILES README.md CHANGELOG.md CONTRIBUTING.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES scripts/grafana.json scripts/hosts.example scripts/kubernetes.yaml scripts/slurm.sbatch DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")

# A build with CUDA needs its libraries to start, so its package has another name.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME extreme-gpu-trainer)
set(CPACK_PACKAGE_CONTACT "the maintainers of extreme_gpu_trainer")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
  "Trains, fills memory, cycles files and exchanges data on every GPU of a node at its power limit, proves every result bit for bit, and says which GPU is to blame. Without a GPU it runs on the host's cores.")
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(egt_other_package extreme-gpu-trainer-cuda)
if(EGT_WITH_CUDA)
  set(CPACK_PACKAGE_NAME extreme-gpu-trainer-cuda)
  set(egt_other_package extreme-gpu-trainer)
endif()
set(CPACK_DEBIAN_PACKAGE_CONFLICTS "${egt_other_package}")
set(CPACK_DEBIAN_PACKAGE_REPLACES "${egt_other_package}")
include(CPack)
